"""A table as text: columns in the order of Spec-Bench's leaderboard, then what it does not show.

Marks: `†` the output may differ from the target model's, `‡` not all prompts were measured, `✗` the
certificate failed, `≈` a mean of several categories' speedups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.leaderboard.boards import Board, Row
from benchmarks.leaderboard.entries import Entry
from benchmarks.statistics import verdict
from benchmarks.summary_text import show, show_count, stop_note

MODELS = "Models"
TAU = "#Mean Accepted Tokens"
OVERALL = "Overall"
MARKS = {
    "†": "The output may differ from the target model's: read strict tau and quality beside it.",
    "‡": "Some prompts failed or are missing: the figures are of the other ones, no medal.",
    "✗": "Promises the target model's output, but its certificate failed: not ranked.",
    "≈": "Mean of several categories' speedups, weighted by prompts: the rows were not kept.",
}
EXPLANATION = (
    "Speedups are against the vanilla decoding that each run was measured beside (Overall: all "
    "prompts); the best of a column is bold, medals need an interval above 1. Against the leader: "
    "no difference if the 95 % intervals overlap (unpaired, conservative). Mean accepted tokens: "
    "tau, tokens per decoding step, prefills left out unless the Definitions column says "
    "otherwise. Coverage: steps with a draft. Strict tau: the same trees under exact verification. "
    "Repetition: share of repeated 4-grams (vanilla's). A star behind a commit: uncommitted "
    "changes. Empty: not measured."
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell.

    Attributes:
        text: Plain text; empty where nothing is known.
        is_best: Whether no other cell of its column is better.
    """

    text: str
    is_best: bool = False


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A board ready to be written.

    Attributes:
        header: Titles of columns.
        lines: One list of cells per row, as long as the header.
        medals: Of each row 1, 2, 3 or None.
        notes: What marks and short ids mean.
    """

    header: list[str]
    lines: list[list[Cell]]
    medals: list[int | None]
    notes: list[str]


def text_table(board: Board, *, is_short: bool = False) -> TextTable:
    """The cells of a board; columns after `Overall` that are empty in all rows are left out.

    Args:
        board: What to write.
        is_short: Without what only identifies a run, for a page of paper.
    """
    definitions = _definitions(board)
    speedups = [(title, _task_cells(board, title)) for title in board.tasks]
    main = [
        (MODELS, [Cell(text=row.entry.label + _marks(row.entry)) for row in board.rows]),
        *speedups,
        (TAU, _marked([(row, row.entry.tau) for row in board.rows], "{:.2f}")),
        (OVERALL, _marked([(row, row.entry.overall) for row in board.rows], "{:.2f}x")),
    ]
    shown = {**_RESULTS, **({} if is_short else _IDENTITY)}
    more = [(title, [Cell(text=text(row)) for row in board.rows]) for title, text in shown.items()]
    if not is_short:
        codes = [_codes(row.entry, definitions) for row in board.rows]
        more.append(("Definitions", [Cell(text=code) for code in codes]))
    columns = main + [column for column in more if any(cell.text for cell in column[1])]
    lines = [list(cells) for cells in zip(*(cells for _, cells in columns), strict=True)]
    return TextTable(
        header=[title for title, _ in columns],
        lines=lines,
        medals=[row.medal for row in board.rows],
        notes=[*_mark_notes(board), *([] if is_short else _definition_notes(board, definitions))],
    )


def _marks(entry: Entry) -> str:
    marks = (entry.is_relaxed, "†"), (entry.has_failures, "‡"), (entry.is_broken, "✗")
    return "".join(mark for is_so, mark in marks if is_so)


def _task_cells(board: Board, title: str) -> list[Cell]:
    figures = [row.entry.tasks.get(title) for row in board.rows]
    values = [
        (row, None if f is None else f.value) for row, f in zip(board.rows, figures, strict=True)
    ]
    cells = _marked(values, "{:.2f}x")
    return [
        Cell(text=cell.text if f is None or f.is_exact else f"≈{cell.text}", is_best=cell.is_best)
        for cell, f in zip(cells, figures, strict=True)
    ]


def _marked(values: list[tuple[Row, float | None]], form: str) -> list[Cell]:
    """Cells with the largest value of ranked rows and vanilla; equal ones as printed share it."""
    texts = ["" if value is None else form.format(value) for _, value in values]
    ranked = [
        (value, text)
        for (row, value), text in zip(values, texts, strict=True)
        if _competes(row) and value is not None
    ]
    best = max(ranked)[1] if ranked else None
    return [
        Cell(text=text, is_best=_competes(row) and text == best)
        for (row, _), text in zip(values, texts, strict=True)
    ]


def _competes(row: Row) -> bool:
    return row.rank is not None or row.entry.is_baseline


def _interval(row: Row) -> str:
    interval = row.entry.interval
    return "" if interval is None else f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def _verdict(row: Row) -> str:
    return "" if row.entry.overall is None or row.entry.is_baseline else verdict(row.entry.interval)


def _against_leader(row: Row) -> str:
    """The standing; of a run that was stopped early where, and what it lost to."""
    stopped = "" if row.entry.run is None else stop_note(row.entry.run.summary)
    return stopped or row.standing


def _value(name: str, form: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        value = row.entry.value(name)
        return "" if value is None else format(value, form)

    return text


def _quality(row: Row) -> str:
    """Task scores with their change; of a relaxed method also likeness, of others identity."""
    entry = row.entry
    words = [
        f"{name.removeprefix('score.').replace('_', ' ')} {show(entry.metric(name), '.2f')}"
        f"{_change(row, name.removeprefix('score.'))}"
        for name in entry.metrics
        if name.startswith("score.")
    ]
    if entry.is_relaxed:
        shown = [("rouge_l", "ROUGE-L", ".2f"), ("regret", "regret", ".3f")]
        words += [
            f"{title} {show(entry.metric(name), form)}"
            for name, title, form in shown
            if entry.value(name) is not None
        ]
    elif same := show_count(entry.metrics.get("identical_outputs")):
        words.append(f"same {same}")
    return ", ".join(words)


def _change(row: Row, what: str) -> str:
    """Against vanilla on the same prompts, with its interval."""
    name = f"score_change.{what}"
    return f" ({show(row.entry.metric(name), '+')})" if row.entry.value(name) is not None else ""


def _repetition(row: Row) -> str:
    own, vanilla = row.entry.value("repetition"), row.entry.value("vanilla_repetition")
    if own is None:
        return ""
    return f"{own:.0%}" if vanilla is None else f"{own:.0%} ({vanilla:.0%})"


def _prompts(row: Row) -> str:
    if row.entry.run is None:
        return ""
    summary = row.entry.run.summary
    return f"{summary['num_measured']} ({summary['num_failed']})"


def _bytes(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.2f} MB"


def _commit(row: Row) -> str:
    if row.entry.run is None:
        return ""
    code = str(row.entry.run.env.get("code_version") or "")[:7]
    return " / ".join(part for part in (row.entry.commit, code) if part)


def _stores(row: Row) -> str:
    """Size, and what explains a speed that is too good: test data in the store."""
    overlaps = row.entry.store_overlaps
    words = [_bytes(row.entry.store_bytes)]
    if None in overlaps:
        words.append("not compared with the test data")
    if found := sum(filter(None, overlaps)):
        words.append(f"{found} documents overlap with the test data")
    return ", ".join(filter(None, words))


_RESULTS: dict[str, Callable[[Row], str]] = {
    "95 % interval": _interval,
    "Against vanilla": _verdict,
    "Against the leader": _against_leader,
    "Coverage": _value("draft_coverage", ".0%"),
    "Strict tau": _value("strict_tau", ".2f"),
    "Quality": _quality,
    "Certificate": lambda row: str(row.entry.certificate.get("badge", "")),
    "Repetition": _repetition,
}
_IDENTITY: dict[str, Callable[[Row], str]] = {
    "Datastore": _stores,
    "Peak memory": lambda row: _bytes(row.entry.value("peak_memory")),
    "Prompts (failed)": _prompts,
    "Cut at budget": _value("length_share", ".0%"),
    "Node budget": lambda row: str(row.entry.node_budget or ""),
    "Commit / code": _commit,
}


def _definitions(board: Board) -> dict[str, str]:
    """Short names of definition ids, in order of appearance."""
    ids = dict.fromkeys(i for row in board.rows for i in row.entry.definition_ids)
    return {definition: f"d{number}" for number, definition in enumerate(ids, start=1)}


def _codes(entry: Entry, definitions: dict[str, str]) -> str:
    return " ".join(definitions[definition] for definition in entry.definition_ids)


def _definition_notes(board: Board, definitions: dict[str, str]) -> list[str]:
    texts: dict[str, str] = {}
    for row in board.rows:
        texts |= {} if row.entry.run is None else row.entry.run.summary.get("definitions") or {}
    return [f"{code} {name}: {texts.get(name, '')}" for name, code in definitions.items()]


def _mark_notes(board: Board) -> list[str]:
    """The meaning of the marks that occur."""
    entries = [row.entry for row in board.rows]
    marks = "".join(_marks(entry) for entry in entries)
    if any(not figure.is_exact for entry in entries for figure in entry.tasks.values()):
        marks += "≈"
    return [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in marks]
