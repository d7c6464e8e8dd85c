"""Does a method gain by what it remembers of earlier prompts? Five runs of it, and one table.

python scripts/audit_state.py method=pld debug=toy
python scripts/audit_state.py method=rest model=smollm2-135m limit=12 max_new_tokens=48

Takes the overrides of run.py except state and order_seed, which it sets itself, and greedy decoding
only. Datasets without a train split are run without the warm state. The runs are kept as any others
and are not measured twice.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

import configs
from benchmarks.cli import Outcome, measure, start_logging
from benchmarks.console import plain_console
from benchmarks.files import RunFolderError
from benchmarks.plan import load_dataset, load_warm_prompts
from benchmarks.results import StoredRun, read_run
from benchmarks.state_audit import CONDITIONS, audit, render_audit
from methods.build import build_law

OWN = ("state", "order_seed")
WARM = "warm"


class _Refused(Exception):
    """Why there is no audit, with the exit status."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message.strip())
        self.code = code


def main(overrides: Sequence[str]) -> int:
    """Runs, or finds, a run per condition; prints what state does."""
    if not overrides or {"-h", "--help"} & set(overrides):
        (sys.stdout if overrides else sys.stderr).write(f"{__doc__}")
        return 0 if overrides else 2
    start_logging()
    try:
        runs = {name: _run(name, overrides) for name in _conditions(overrides)}
        facts = runs[next(iter(runs))].facts
        rows = {name: run.requests for name, run in runs.items()}
        effects = audit(rows, is_lossless=facts["is_lossless"])
    except _Refused as error:
        sys.stderr.write(f"error: {error}\n")
        return error.code
    except (RunFolderError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    console = plain_console()
    console.print(render_audit(effects))
    word = "may remember" if facts["is_stateful"] else "declares that it remembers nothing of"
    console.print(f"\nThe retriever {word} earlier prompts.")
    return 0


def _conditions(overrides: Sequence[str]) -> list[str]:
    """The names of those that can be run; whatever none of them could use is refused here."""
    for override in overrides:
        if override.lstrip("+~").partition("=")[0] in OWN:
            raise _Refused(f"{override}: the audit sets {' and '.join(OWN)} itself: leave it out")
    if unknown := configs.unknown_choice(list(overrides)):
        raise _Refused(unknown)
    config = _composed(overrides)
    try:
        if not build_law(config).is_greedy:
            raise _Refused(
                f"temperature={config['temperature']}: the audit needs greedy decoding "
                "(temperature=0): the steps of two samples differ by chance"
            )
        # Which prompts are taken is for the runs to check: here only whether they can be read.
        load_dataset({**config, "limit": None, "order_seed": None})
    except (ValueError, OSError) as error:
        raise _Refused(str(error)) from error
    try:
        load_warm_prompts({**config, "warm_limit": None})
    except (ValueError, OSError) as error:
        reason = error.__cause__ or error
        sys.stderr.write(f"left out: {WARM}, which needs a train split: {reason}\n")
        return [name for name in CONDITIONS if name != WARM]
    return list(CONDITIONS)


def _run(name: str, overrides: Sequence[str]) -> StoredRun:
    """The finished run of one condition."""
    changes = CONDITIONS[name].items()
    words = [f"{key}={'null' if value is None else value}" for key, value in changes]
    outcome = _measure(_composed([*overrides, *words, "stop_early=false"]))
    if outcome.path is None:
        raise _Refused(f"state '{name}': {outcome.message or ''}", outcome.code or 1)
    return read_run(outcome.path)


def _measure(config: Mapping[str, Any]) -> Outcome:
    """Without the tables of the run itself."""
    with redirect_stdout(io.StringIO()):
        return measure(config)


def _composed(overrides: Sequence[str]) -> dict[str, Any]:
    try:
        return configs.composed(*overrides)
    except (HydraException, OmegaConfBaseException) as error:
        # Below the first line stand hints for those who edit configuration files.
        raise _Refused(str(error).strip().splitlines()[0]) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
