"""Does a method gain by what it remembers of earlier prompts? Five runs of it, and one table.

python scripts/audit_state.py method=pld debug=toy
python scripts/audit_state.py method=rest model=smollm2-135m limit=12 max_new_tokens=48
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

import configs
from benchmarks.cli import Outcome, measure, start_logging
from benchmarks.results import read_run
from benchmarks.state_audit import CONDITIONS, audit, render_audit
from benchmarks.table import plain_console


def main(overrides: Sequence[str]) -> int:
    """Runs, or finds, a run per condition; prints what state does."""
    start_logging()
    if unknown := configs.unknown_choice(list(overrides)):
        sys.stderr.write(f"error: {unknown}\n")
        return 2
    rows, is_lossless, is_stateful = {}, True, False
    for name, changes in CONDITIONS.items():
        outcome = _measure(overrides, changes)
        if outcome.path is None:
            sys.stderr.write(f"error: state '{name}': {(outcome.message or '').strip()}\n")
            return outcome.code or 1
        run = read_run(outcome.path)
        rows[name] = run.requests
        is_lossless, is_stateful = run.facts["is_lossless"], run.facts["is_stateful"]
    console = plain_console()
    console.print()
    console.print(render_audit(audit(rows, is_lossless=is_lossless)))
    word = "may remember" if is_stateful else "declares that it remembers nothing of"
    console.print(f"\nThe retriever {word} earlier prompts.")
    return 0


def _measure(overrides: Sequence[str], changes: Mapping[str, object]) -> Outcome:
    words = [f"{key}={'null' if value is None else value}" for key, value in changes.items()]
    try:
        return measure(configs.composed(*overrides, *words))
    except (HydraException, OmegaConfBaseException) as error:
        return Outcome(code=2, message=str(error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
