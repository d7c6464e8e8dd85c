"""Measures one method on one model and one dataset, beside its vanilla baseline.

python run.py method=pld model=smollm2-135m dataset=quickstart
python run.py --help lists every choice and option; -m sweeps them.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import configs
from benchmarks.cli import Outcome, measure, start_logging
from benchmarks.comparison import differing, print_comparison, with_labels
from benchmarks.outcomes import (
    CellOutcome,
    note_outcome,
    note_start,
    note_sweep,
    read_outcomes,
)
from benchmarks.results import read_run
from benchmarks.shards import whole_run

INTERRUPTED = 130
SWEEP_DIR = "hydra.sweep.dir="
OUTCOMES: list[Outcome] = []
"""Of a single run, which takes place in this process."""


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def main(config: DictConfig) -> None:
    """Config -> objects -> run folder; a user's mistake is one message, not a traceback."""
    start_logging()
    if HydraConfig.get().mode == RunMode.RUN:
        OUTCOMES.append(measure_one(config))
    else:
        measure_cell(config, Path(HydraConfig.get().runtime.output_dir))


def measure_one(config: DictConfig, cell: Path | None = None) -> Outcome:
    """One run; a cell of a sweep is told where its results will be."""
    chosen = HydraConfig.get().runtime.choices
    label = " ".join(HydraConfig.get().overrides.task)
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        swapped = configs.swapped_primitives(chosen["method"], chosen)
        if cell is None:
            return measure(plain, swapped)
        return measure(plain, swapped, on_start=lambda path: note_start(cell, label, path))
    except OmegaConfBaseException as error:
        return Outcome(code=2, message=str(error))


def measure_cell(config: DictConfig, folder: Path) -> None:
    """One cell of a sweep, here or in a job; whatever happens to it stops none of the others."""
    label = " ".join(HydraConfig.get().overrides.task)
    note_start(folder, label)
    try:
        outcome = measure_one(config, folder)
    except Exception as error:
        traceback.print_exc()
        outcome = Outcome(code=1, message=f"{type(error).__name__}: {error}")
    path = None if outcome.path is None else str(outcome.path.resolve())
    note_outcome(
        folder, CellOutcome(label=label, code=outcome.code, message=outcome.message, path=path)
    )
    if outcome.code == INTERRUPTED:
        raise KeyboardInterrupt


def sweep(words: Sequence[str]) -> int:
    """All cells, then what became of them."""
    folder = Path("outputs/multirun", f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}")
    for word in words:
        if word.startswith(SWEEP_DIR):  # The user wants another one.
            folder = Path(word.removeprefix(SWEEP_DIR))
    note_sweep(folder, words)
    sys.argv[1:] = ["-m", *words, f"{SWEEP_DIR}{folder}"]
    with suppress(KeyboardInterrupt):  # What has been measured is reported.
        main()
    return report(read_outcomes(folder), folder)


def report(outcomes: Sequence[CellOutcome], folder: Path) -> int:
    """Tells what failed, prints one table of the others, and gives the exit code."""
    for outcome in outcomes:
        if outcome.message:
            sys.stderr.write(f"error in {outcome.label}: {outcome.message.strip()}\n")
    labels = {whole_run(Path(o.path)): o.label for o in outcomes if o.path and o.code == 0}
    runs = [read_run(path) for path in labels if path is not None]
    if len(runs) > 1:
        names = differing([label for path, label in labels.items() if path is not None])
        print_comparison(with_labels([run.summary for run in runs], names))
    sys.stdout.write(f"python scripts/sweep_status.py {folder}\n")
    return max((outcome.code for outcome in outcomes), default=0)


if __name__ == "__main__":
    if unknown := configs.unknown_choice(sys.argv[1:]):
        sys.exit(f"error: {unknown}")
    # Hydra takes -m in front of the overrides only; people put it anywhere.
    arguments = [word for word in sys.argv[1:] if word not in ("-m", "--multirun")]
    if len(arguments) < len(sys.argv) - 1:
        sys.exit(sweep(arguments))
    main()
    for outcome in OUTCOMES:
        if outcome.message:
            sys.stderr.write(f"error: {outcome.message.strip()}\n")
    sys.exit(max((outcome.code for outcome in OUTCOMES), default=0))
