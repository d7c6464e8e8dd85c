"""How a sweep stands: done, running, failed, lost and missing cells, and how to go on.

python scripts/sweep_status.py              the newest sweep below outputs/multirun
python scripts/sweep_status.py FOLDER
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.console import plain_console
from benchmarks.files import RunFolderError
from benchmarks.outcomes import SWEEP
from benchmarks.sweeps import advice, read_sweep, render_sweep

SWEEPS = Path("outputs/multirun")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 1 if a cell failed, was lost or is missing, 3 while some are running."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="the folder of a sweep")
    folder = parser.parse_args(arguments).folder
    try:
        sweep = read_sweep(folder or _newest())
    except RunFolderError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    plain_console().print(render_sweep(sweep))
    sys.stdout.write("\n".join(["", *advice(sweep), ""]))
    states = {cell.state for cell in sweep.cells}
    if states & {"running", "waiting"}:
        return 3
    return 0 if states and states <= {"done", "stopped"} else 1


def _newest() -> Path:
    sweeps = sorted(SWEEPS.glob(f"*/{SWEEP}"), key=lambda path: path.stat().st_mtime)
    if not sweeps:
        raise RunFolderError(f"no sweep in {SWEEPS}: name the folder of one")
    return sweeps[-1].parent


if __name__ == "__main__":
    sys.exit(main())
