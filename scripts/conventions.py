"""Shows runs under every published definition of acceptance and speedup.

python scripts/conventions.py results/smollm2-135m/quickstart/pld/RUN
python scripts/conventions.py --format markdown RUN_OR_FOLDER ...
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from benchmarks.conventions import LETTERS, Convention, panel
from benchmarks.files import RunFolderError
from benchmarks.results import StoredRun, read_runs
from benchmarks.table import new_table, plain_console, variant

Panel = tuple[StoredRun, list[Convention]]
CSV_COLUMNS = (
    "model", "dataset", "method", "run_id", "convention", "used_by", "value", "unit",
    "definition_id", "formula", "trap",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the panel of each run; 2 if one has no rows or cannot be read."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="run folders, or folders of runs")
    parser.add_argument("--format", choices=("text", "markdown", "csv"), default="text")
    options = parser.parse_args(arguments)
    try:
        runs, unusable = read_runs(options.paths)
        panels = [(run, panel(run.requests)) for run in runs]
    except RunFolderError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for folder in unusable:
        sys.stderr.write(f"left out: {folder}\n")
    if options.format == "csv":
        print(_csv(panels), end="")
    elif options.format == "markdown":
        print("\n".join(_markdown(run, rows) for run, rows in panels), end="")
    else:
        for run, rows in panels:
            _print(run, rows)
        plain_console().print(Text(LETTERS))
    return 0 if panels else 2


def _print(run: StoredRun, rows: Sequence[Convention]) -> None:
    table = new_table("convention", "value", "formula", "used by")
    for column in table.columns[2:]:
        column.justify, column.no_wrap = "left", False
    for row in rows:
        table.add_row(row.name, _show(row), row.formula, row.used_by)
    console = plain_console()
    console.print(Text(_title(run), style="bold"), table, "")


def _markdown(run: StoredRun, rows: Sequence[Convention]) -> str:
    head = ("convention", "used by", "value", "formula", "mind", "definition")
    lines: list[tuple[str, ...]] = [head, ("---", "---", "---:", "---", "---", "---")]
    for row in rows:
        texts = (row.name, row.used_by, _show(row), row.formula, row.trap, f"`{row.definition_id}`")
        lines.append(tuple(text.replace("|", "\\|") for text in texts))
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_title(run)}:\n\n{table}\n\n{LETTERS}.\n"


def _csv(panels: Sequence[Panel]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for run, rows in panels:
        names = [run.facts[key] for key in ("model", "dataset", "method", "run_id")]
        for row in rows:
            texts = (row.unit, row.definition_id, row.formula, row.trap)
            writer.writerow([*names, row.name, row.used_by, row.value, *texts])
    return stream.getvalue()


def _title(run: StoredRun) -> str:
    facts = run.facts
    return f"{facts['method']} on {facts['dataset']}, {facts['model']}{variant(facts)}"


def _show(row: Convention) -> str:
    return "-" if row.value is None else f"{row.value:.3f}"


if __name__ == "__main__":
    sys.exit(main())
