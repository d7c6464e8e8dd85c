"""Puts finished runs into a paper's table, beside the figures that were published.

python scripts/paper_table.py outputs/multirun/FOLDER           the sweep of an experiment
python scripts/paper_table.py results/smollm2-135m --table table3
python scripts/paper_table.py SWEEP SWEEP --format markdown
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from hydra.errors import HydraException

import configs
from benchmarks.files import RunFolderError, read_json
from benchmarks.outcomes import SWEEP
from benchmarks.paper_lines import markdown_table, print_table, runs_of_sweep
from benchmarks.paper_tables import TABLES, PaperTable, table_of_experiments
from benchmarks.results import StoredRun, read_runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 2 if there is nothing to show."""
    options = _parse(arguments)
    try:
        table = TABLES[options.table] if options.table else _table_of(options.paths)
        runs = _runs(options.paths)
        sweeps = [path for path in options.paths if (path / SWEEP).exists()]
        if options.format == "markdown":
            sys.stdout.write(markdown_table(table, runs, sweeps))
        else:
            print_table(table, runs, sweeps)
    except (RunFolderError, HydraException) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="folders of sweeps, or of runs")
    parser.add_argument("--table", choices=tuple(TABLES), help="if no sweep says it")
    parser.add_argument("--format", choices=("text", "markdown"), default="text")
    return parser.parse_args(arguments)


def _table_of(paths: Sequence[Path]) -> PaperTable:
    """The table of the first sweep whose experiment has one."""
    for path in paths:
        words = (read_json(path / SWEEP) or {}).get("words", [])
        if table := table_of_experiments(list(chain(*configs.experiments(words)))):
            return table
    raise RunFolderError(
        f"{paths[0]} is no sweep of an experiment with a table: say which one, "
        f"--table {' | '.join(TABLES)}"
    )


def _runs(paths: Sequence[Path]) -> list[StoredRun]:
    """What is finished; run folders that cannot be used are told on stderr."""
    runs: list[StoredRun] = []
    for path in paths:
        if (path / SWEEP).exists():
            runs += runs_of_sweep(path)
            continue
        found, unusable = read_runs([path])
        runs += found
        sys.stderr.writelines(f"left out: {folder}\n" for folder in unusable)
    return runs


if __name__ == "__main__":
    sys.exit(main())
