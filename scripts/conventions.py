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

from benchmarks.console import new_table, plain_console
from benchmarks.conventions import LETTERS, Convention, panel
from benchmarks.files import RunFolderError
from benchmarks.markdown import pipe_table
from benchmarks.results import StoredRun, Unusable, read_runs
from benchmarks.summary_text import variant

Panel = tuple[StoredRun, list[Convention]]
CSV_COLUMNS = (
    "model", "dataset", "method", "run_id", "convention", "used_by", "value", "unit",
    "definition_id", "formula", "trap",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the panel of each run that has rows; 2 if none has."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="run folders, or folders of runs")
    parser.add_argument("--format", choices=("text", "markdown", "csv"), default="text")
    options = parser.parse_args(arguments)
    try:
        runs, unusable = read_runs(options.paths)
    except RunFolderError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    panels, without_rows = _panels(runs)
    left_out = [*unusable, *without_rows]
    sys.stderr.writelines(f"left out: {folder}\n" for folder in left_out)
    if not panels:
        sys.stderr.write(f"error: no run has rows to show; left out: {len(left_out)}\n")
        return 2
    if options.format == "csv":
        print(_csv(panels), end="")
    elif options.format == "markdown":
        print("\n".join(_markdown(run, rows) for run, rows in panels), end="")
    else:
        for run, rows in panels:
            _print(run, rows)
        plain_console().print(Text(LETTERS))
    return 0


def _panels(runs: Sequence[StoredRun]) -> tuple[list[Panel], list[Unusable]]:
    """The panels of runs with rows; the other runs."""
    panels, left_out = [], []
    for run in runs:
        try:
            requests = run.requests if run.has_rows else None
        except RunFolderError as error:
            left_out.append(Unusable(path=run.path, reason=str(error)))
            continue
        if requests is None:
            of_whom = "imported answer files have none" if run.is_imported else "they were not kept"
            left_out.append(Unusable(path=run.path, reason=f"no rows to count from: {of_whom}"))
        else:
            panels.append((run, panel(requests)))
    return panels, left_out


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
    lines = [
        (row.name, row.used_by, _show(row), row.formula, row.trap, f"`{row.definition_id}`")
        for row in rows
    ]
    table = pipe_table(head, lines, left=(0, 1, 3, 4, 5))
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
