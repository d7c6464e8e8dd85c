"""Our runs and what was published in one table, line by line under one row title.

Every line names its model and its data, and the hardware of both stands beside the table: other
models, hardware and data give other numbers, and only the order of the rows can be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from benchmarks.comparison import comparable, differing
from benchmarks.console import new_table, plain_console
from benchmarks.files import RunFolderError
from benchmarks.leaderboard.conditions import conditions_of
from benchmarks.leaderboard.headings import device_text
from benchmarks.markdown import escape, pipe_table
from benchmarks.outcomes import (
    CellOutcome,
    cell_folders,
    read_cells,
    read_outcome,
    read_outcomes,
)
from benchmarks.paper_tables import PaperTable
from benchmarks.published import SETTING, Published, published
from benchmarks.results import StoredRun, read_run
from benchmarks.shards import whole_run
from benchmarks.summary_text import stop_note

WHOSE_WIDTH, UNLIMITED = 32, 1000
EXPLANATION = (
    f"Published: {SETTING}; from its abstract and drafts of its authors' answers to reviewers. "
    "Other models, hardware and data than ours: compare the order of rows, not the numbers.",
    "Brackets: 95 % intervals over prompts. tau: tokens per step; strict tau: the same trees under "
    "exact verification; speedup: tokens per second over vanilla's, prefill included; regret: nats "
    "per token below the argmax; ROUGE-L: likeness to vanilla's answers. Empty: not public; -: not "
    "defined or not measured.",
)
NONE = "-"
"""A figure of ours that there is not."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table.

    Attributes:
        row: What was measured.
        whose: `ours` or `published`, with model and dataset.
        cells: One text per column, with intervals where there are any.
    """

    row: str
    whose: str
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Runs under equal conditions, and what was published of the same.

    Attributes:
        title: Model, data, budget and hardware of ours.
        heads: Titles of the columns of figures; those without a figure are left out.
        lines: Row by row: in the order of ours, then those that are published only.
    """

    title: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]


def runs_of_sweep(folder: Path) -> list[StoredRun]:
    """The runs of a sweep's cells that are done.

    Raises:
        RunFolderError: If a file is damaged, or a run is no longer there.
    """
    paths = [Path(o.path) for o in read_outcomes(folder) if o.path and o.code == 0]
    wholes = dict.fromkeys(map(whole_run, paths))
    return [read_run(path) for path in wholes if path is not None]


def left_out(table: PaperTable, runs: Sequence[StoredRun], sweep: Path) -> str:
    """`1 of 2 cells is not in this table: method=pld`; empty if all of them are.

    Args:
        table: The table.
        runs: All runs that it is made from.
        sweep: The folder of a sweep; what is not finished, or has no row, is left out.

    Raises:
        RunFolderError: If a file is damaged.
    """
    ended = {int(folder.name): read_outcome(folder) for folder in cell_folders(sweep)}
    labels = dict(enumerate(read_cells(sweep))) or {n: o.label for n, o in ended.items() if o}
    shown = _shown(table, runs)
    missing = [n for n in labels if not _is_shown(ended.get(n), shown)]
    if not missing:
        return ""
    words = differing(list(labels.values())) if len(labels) > 1 else list(labels.values())
    names = dict(zip(labels, words, strict=True))
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"{len(missing)} of {len(labels)} cells {verb} not in this table: "
        f"{'; '.join(names[n] for n in missing)}"
    )


def _is_shown(outcome: CellOutcome | None, shown: Collection[Path | None]) -> bool:
    if outcome is None or outcome.code != 0 or outcome.path is None:
        return False
    return whole_run(Path(outcome.path)) in shown


def _shown(table: PaperTable, runs: Sequence[StoredRun]) -> set[Path]:
    """Folders of the runs that have a row; a run may be found in several folders."""
    groups = [group for _, group in _groups(runs)]
    ids = {run.facts["run_id"] for group in groups for _, run in _placed(table, group)}
    return {run.path for run in runs if run.facts["run_id"] in ids}


def blocks_of(table: PaperTable, runs: Sequence[StoredRun]) -> list[Block]:
    """A block per group of comparable runs.

    Raises:
        RunFolderError: If no run belongs into the table, or rows are needed and damaged.
    """
    blocks = []
    for conditions, group in _groups(runs):
        if ours := _ours(table, group):
            device = device_text(conditions_of(group[0]).device)
            # Named already where another group was measured on another one.
            title = conditions if device in conditions else f"{conditions}; {device}"
            theirs = _theirs(table, str(group[0].facts["dataset"]))
            blocks.append(_block(table, f"Ours: {title}", ours, theirs))
    if not blocks:
        raise RunFolderError(
            f"none of the {len(runs)} finished runs belongs into the table of {table.name}"
        )
    return blocks


def _groups(runs: Sequence[StoredRun]) -> list[tuple[str, list[StoredRun]]]:
    """Comparable runs, each once, with what they share in words."""
    by_id = {str(run.facts["run_id"]): run for run in runs}
    return [
        (conditions, [by_id[str(summary["run"]["run_id"])] for summary in summaries])
        for conditions, summaries in comparable(list(by_id.values()))
    ]


def _placed(table: PaperTable, group: Sequence[StoredRun]) -> list[tuple[str, StoredRun]]:
    return [(row, run) for run in group if (row := table.row(run, group)) is not None]


def _ours(table: PaperTable, group: Sequence[StoredRun]) -> list[Line]:
    placed = _placed(table, group)
    rows = [row for row, _ in placed]
    return [
        Line(
            row=row,
            whose=_whose(run, is_alone=rows.count(row) == 1),
            cells=tuple(column.text(column.value(run, group)) or NONE for column in table.columns),
        )
        for row, run in placed
    ]


def _whose(run: StoredRun, *, is_alone: bool) -> str:
    # Two runs in one row differ in something that the table does not show.
    name = "ours" if is_alone else f"ours, run {run.facts['run_id']}"
    failed = run.summary["num_failed"]
    words = [
        f"{name}: {run.facts['model']}, {run.facts['dataset']}",
        stop_note(run.summary),
        f"{failed} failed" if failed else "",
    ]
    return "; ".join(word for word in words if word)


def _theirs(table: PaperTable, dataset: str) -> list[Line]:
    return [_published(table, line) for line in published(table.name, dataset)]


def _published(table: PaperTable, line: Published) -> Line:
    return Line(
        row=line.row,
        whose=f"published: {line.model}, {line.dataset} ({line.source})",
        cells=tuple(
            column.published_text(line.values.get(column.name)) for column in table.columns
        ),
    )


def _block(table: PaperTable, title: str, ours: list[Line], theirs: list[Line]) -> Block:
    lines = [*ours, *theirs]
    order = list(dict.fromkeys(line.row for line in lines))
    lines.sort(key=lambda line: order.index(line.row))
    shown = [
        n
        for n in range(len(table.columns))
        if any(line.cells[n] not in ("", NONE) for line in lines)
    ]
    return Block(
        title=title,
        heads=tuple(table.columns[n].head for n in shown),
        lines=tuple(
            Line(row=line.row, whose=line.whose, cells=tuple(line.cells[n] for n in shown))
            for line in lines
        ),
    )


def print_table(table: PaperTable, runs: Sequence[StoredRun], sweeps: Sequence[Path] = ()) -> None:
    """Prints the table to stdout, with the cells of the runs' sweeps that are not in it.

    Raises:
        RunFolderError: If no run belongs into the table, rows are needed and damaged, or a file of
            a sweep is.
    """
    console = plain_console()
    blocks = [(block.title, _grid(block)) for block in blocks_of(table, runs)]
    # An interval that is broken over lines cannot be read.
    wide = console.options.update(max_width=UNLIMITED)
    widths = [Measurement.get(console, wide, grid).maximum for _, grid in blocks]
    console.width = max(console.width, *widths)
    parts: list[RenderableType] = [
        Text(f"{table.title}, beside published figures", style="bold"),
        "",
    ]
    for title, grid in blocks:
        parts += [Text(title), grid, ""]
    console.print(Group(*parts, *map(Text, _notes(table, runs, sweeps))))


def _grid(block: Block) -> Table:
    grid = new_table("", "whose", *block.heads, may_wrap=("whose",))
    grid.columns[1].width = WHOSE_WIDTH
    previous = None
    for line in block.lines:
        grid.add_row("" if line.row == previous else line.row, line.whose, *line.cells)
        previous = line.row
    return grid


def markdown_table(
    table: PaperTable, runs: Sequence[StoredRun], sweeps: Sequence[Path] = ()
) -> str:
    """The same for notes and README files.

    Raises:
        RunFolderError: If no run belongs into the table, rows are needed and damaged, or a file of
            a sweep is.
    """
    parts = [f"### {table.title}"]
    for block in blocks_of(table, runs):
        rows = [[escape(t) for t in (line.row, line.whose, *line.cells)] for line in block.lines]
        heads = ["", "whose", *block.heads]
        parts += [escape(block.title), pipe_table(heads, rows, left=(0, 1))]
    return "\n\n".join([*parts, *map(escape, _notes(table, runs, sweeps))]) + "\n"


def _notes(table: PaperTable, runs: Sequence[StoredRun], sweeps: Sequence[Path]) -> list[str]:
    missing = [left_out(table, runs, sweep) for sweep in sweeps]
    return [*(words for words in missing if words), *EXPLANATION, *table.notes]
