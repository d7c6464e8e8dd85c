"""Builds a datastore, or says what one holds.

python scripts/build_datastore.py datastore=tokens dataset=quickstart
python scripts/build_datastore.py datastore=hidden_states model=smollm2-135m source=generated
python scripts/build_datastore.py datastore=tokens dataset=text dataset.path=FOLDER
python scripts/build_datastore.py datastore=bigrams model=smollm2-135m
python scripts/build_datastore.py datastore=ngram_trees dataset=quickstart max_bytes=1000000
python scripts/build_datastore.py --describe FOLDER     what a store holds and where it came from
python scripts/build_datastore.py --verify FOLDER       reads every byte of it

Options are those of run.py; `split=`, `source=`, `limit=` and the other fields of
configs/datastore/*.yaml may be written without `datastore.` in front. A run with the same model,
dataset and options finds the store by itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

import configs
from benchmarks.cli import start_logging
from benchmarks.datastore_config import CONFIGS
from benchmarks.datastores import provide_datastore
from methods.build import build_model
from methods.datastores.folder import Header, check_files, read_header
from methods.targets.errors import ModelUnavailable


def main(arguments: Sequence[str]) -> int:
    """Builds, describes or verifies; a user's mistake is one message, not a traceback."""
    start_logging()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    try:
        if arguments[0] in ("--describe", "--verify"):
            return inspect_store(arguments)
        return build(arguments)
    except (ValueError, OSError, ModelUnavailable, HydraException, OmegaConfBaseException) as error:
        sys.stderr.write(f"error: {str(error).strip()}\n")
        return 2


def build(overrides: Sequence[str]) -> int:
    """Builds the store that the overrides describe, and describes it."""
    config = composed(overrides)
    if config["datastore"]["kind"] is None:
        raise ValueError(f"say what to build: datastore={' or datastore='.join(CONFIGS)}")
    model = build_model(config["model"])
    opened = provide_datastore(config, model, is_asked=True)
    print(describe(opened.header, opened.path))
    return 0


def inspect_store(arguments: Sequence[str]) -> int:
    """What a store says about itself, and whether its files are what it says."""
    if len(arguments) != 2:
        raise ValueError(f"{arguments[0]} takes one folder")
    path = Path(arguments[1])
    header = read_header(path)
    is_full = arguments[0] == "--verify"
    check_files(path, header, is_full=is_full)
    print(describe(header, path))
    if is_full:
        print("all files are intact")
    return 0


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration; short names of datastore fields are completed."""
    if unknown := configs.unknown_choice(overrides):
        raise ValueError(unknown)
    fields = {name for cls in CONFIGS.values() for name in cls.__dataclass_fields__}
    words = [
        f"datastore.{word}" if word.partition("=")[0] in fields else word for word in overrides
    ]
    return configs.composed("method=vanilla", *words)


def describe(header: Header, path: Path) -> str:
    """A few lines for people; the header has everything."""
    lines = [
        f"{header.kind} store, {header.num_tokens:,} tokens in {header.num_documents:,} documents, "
        f"{header.num_bytes / 1e6:,.1f} MB",
        *(f"from {json.dumps(dict(source))}" for source in header.sources[:5]),
        *([f"and {len(header.sources) - 5} more"] if len(header.sources) > 5 else []),
        *([f"model {json.dumps(dict(header.model))}"] if header.model else []),
        f"report {json.dumps(dict(header.report))}",
        f"built by {header.command}",
        str(path),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
