"""The table of results: cells as text, and as numbers to sort by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report.groups import Entry, Group
from benchmarks.statistics import verdict
from benchmarks.summary_text import show, show_count

Metric = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell.

    Attributes:
        text: What is read; empty if there is nothing.
        value: What it is sorted by; None sorts last.
        note: A word that belongs to the value.
    """

    text: str = ""
    value: float | str | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        head: Its name.
        hint: What it means.
        cell: Gives the cell of a run.
        vanilla: Metric that holds vanilla's value, shown in the first row.
        form: How vanilla's value is written.
    """

    head: str
    hint: str
    cell: Callable[[Entry], Cell]
    vanilla: str = ""
    form: str = ""


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A table with at least one row per run.

    Attributes:
        columns: Those in which some row has something to say.
        rows: Vanilla as the first run measured it, then the runs in the order of their group.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def result_table(group: Group) -> ResultTable:
    """All runs of a group beside the vanilla of the first one."""
    columns = _columns(group)
    rows = [
        [_vanilla_cell(column, group.entries[0]) for column in columns],
        *([column.cell(entry) for column in columns] for entry in group.entries),
    ]
    used = [place for place in range(len(columns)) if any(row[place].text for row in rows)]
    return ResultTable(
        columns=tuple(columns[place] for place in used),
        rows=tuple(tuple(row[place] for place in used) for row in rows),
    )


def _columns(group: Group) -> list[Column]:
    plain = [
        Column(head="method", hint="How drafts are made and verified.", cell=_method),
        Column(head="speedup [95 %]", hint=_meaning(group, ""), cell=_speedup),
        _column(group, "tok/s", "tokens_per_second", ".1f", has_vanilla=True),
        _column(group, "tau", "tau", ".2f", has_vanilla=True),
        _column(group, "strict tau", "strict_tau", ".2f"),
        _column(group, "coverage", "draft_coverage", ".0%"),
        _column(group, "node acc.", "node_acceptance_rate", ".0%"),
        _column(group, "regret", "regret", ".3f"),
        _column(group, "ROUGE-L", "rouge_l", ".2f"),
    ]
    return [*plain, *_scores(group), *_guards(group)]


def _scores(group: Group) -> list[Column]:
    """Scores of tasks, and what remains of vanilla's."""
    names = dict.fromkeys(name for entry in group.entries for name in entry.metrics)
    columns = []
    for name in names:
        kind, _, task = name.partition(".")
        if kind == "score":
            columns.append(_column(group, task, name, ".3f", has_vanilla=True))
        elif kind == "relative_score":
            columns.append(_column(group, f"{task} / vanilla", name, ".2f"))
    return columns


def _guards(group: Group) -> list[Column]:
    return [
        Column(head="certificate", hint="Whether the output is vanilla's.", cell=_badge),
        _column(group, "repetition", "repetition", ".0%", has_vanilla=True),
        Column(head="same ids", hint=_meaning(group, "identical_outputs"), cell=_identical),
        Column(
            head="failed",
            hint="Prompts with an error; they count in no other column.",
            cell=lambda entry: _count(entry.run.summary["num_failed"]),
        ),
        Column(head="memory", hint=_meaning(group, "peak_memory"), cell=_memory),
    ]


def _column(group: Group, head: str, name: str, form: str, *, has_vanilla: bool = False) -> Column:
    return Column(
        head=head,
        hint=_meaning(group, name),
        cell=lambda entry: _metric(entry.metrics.get(name), form),
        vanilla=_vanilla_name(name) if has_vanilla else "",
        form=form,
    )


def _meaning(group: Group, name: str) -> str:
    """How the runs say that they counted a metric; "" is each one's primary speedup."""
    texts: dict[str, None] = {}
    for entry in group.entries:
        summary = entry.run.summary
        metric = entry.metrics.get(name or summary["primary_speedup"])
        if metric is not None:
            texts[summary["definitions"].get(metric["definition"], metric["definition"])] = None
    return " Or: ".join(texts)


def _vanilla_name(name: str) -> str:
    return name.replace("score.", "vanilla_score.") if "." in name else f"vanilla_{name}"


def _metric(metric: Metric | None, form: str) -> Cell:
    if metric is None or metric["value"] is None:
        return Cell()
    return Cell(text=show(metric, form), value=metric["value"])


def _vanilla_cell(column: Column, entry: Entry) -> Cell:
    if column.head == "method":
        return Cell(text="vanilla", value="vanilla")
    return _metric(entry.metrics.get(column.vanilla), column.form)


def _method(entry: Entry) -> Cell:
    note = "imported" if entry.run.is_imported else ""
    return Cell(text=entry.label, value=entry.label, note=note)


def _speedup(entry: Entry) -> Cell:
    metric = entry.metrics.get(entry.run.summary["primary_speedup"])
    if metric is None or metric["value"] is None:
        return Cell()
    interval: Sequence[float] | None = metric["interval"]
    word = verdict(None if interval is None else (interval[0], interval[1]))
    return Cell(text=show(metric, "x"), value=metric["value"], note=word)


def _badge(entry: Entry) -> Cell:
    badge = str(entry.run.summary.get("certificate", {}).get("badge") or "")
    return Cell(text=badge, value=badge or None)


def _identical(entry: Entry) -> Cell:
    metric = entry.metrics.get("identical_outputs")
    if metric is None:
        return Cell()
    return Cell(text=show_count(metric), value=metric["value"] / max(1, metric["num_prompts"]))


def _count(number: int) -> Cell:
    return Cell(text=str(number), value=number)


def _memory(entry: Entry) -> Cell:
    metric = entry.metrics.get("peak_memory")
    if metric is None or metric["value"] is None:
        return Cell()
    return Cell(text=f"{metric['value'] / 1e9:.2f} GB", value=metric["value"])
