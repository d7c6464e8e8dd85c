"""Speedups by task: which columns a table has, and the figure of a run in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.metrics import summarize
from benchmarks.results import StoredRun
from benchmarks.spec_bench.tasks import TASK_GROUPS, task_of

MAX_CATEGORIES = 8
"""A dataset with more categories gets no columns for them."""

Tasks = Mapping[str, Sequence[str]]
"""Column title -> categories of the dataset."""


@dataclass(frozen=True)
class TaskFigure:
    """The speedup on one task.

    Attributes:
        value: Vanilla's over the method's cost, as the run's primary speedup counts it.
        is_exact: False for a mean of its categories' speedups: an approximation.
    """

    value: float
    is_exact: bool = True


def task_columns(categories: Sequence[str]) -> Tasks:
    """The columns for a dataset with these categories.

    Spec-Bench's own, in its order, if the categories belong to at least two of its tasks and to
    nothing else; else one per category if there are 2 to `MAX_CATEGORIES`; else none.
    """
    present = set(categories)
    touched = [title for title, members in TASK_GROUPS.items() if present & set(members)]
    known = {category for members in TASK_GROUPS.values() for category in members}
    if len(touched) > 1 and present <= known:
        return TASK_GROUPS
    distinct = list(dict.fromkeys(categories))
    if 2 <= len(distinct) <= MAX_CATEGORIES:
        return {category: (category,) for category in distinct}
    return {}


def task_figures(run: StoredRun, tasks: Tasks) -> dict[str, TaskFigure]:
    """The speedup of a run per task; tasks that it has no figure of are left out.

    A task of one measured category has that category's speedup. That of several is counted anew
    from the rows, as if they were one category: a sum of times over a sum of times. Without rows it
    is the mean of the categories' speedups, weighted by their prompts.

    Raises:
        RunFolderError: If the rows are needed and damaged.
    """
    measured: Mapping[str, Any] = run.summary["categories"]
    present = {
        title: [category for category in members if category in measured]
        for title, members in tasks.items()
    }
    merged = [title for title, members in present.items() if len(members) > 1]
    recounted = _recount(run, {title: present[title] for title in merged} if merged else {})
    figures = {}
    for title, members in present.items():
        figure = recounted.get(title) or _from_categories(run, members)
        if figure is not None:
            figures[title] = figure
    return figures


def _recount(run: StoredRun, tasks: Tasks) -> dict[str, TaskFigure]:
    """The speedup of tasks of several categories, from the rows."""
    if not tasks or not run.has_rows:
        return {}
    title_of = {category: title for title, members in tasks.items() for category in members}
    rows = [
        replace(row, category=title_of[row.category])
        for row in run.requests
        if row.category in title_of
    ]
    # Neither ids nor quality are wanted here, and they cost the most.
    summary = summarize(rows, is_greedy=False, is_lossless=True)
    name = run.summary["primary_speedup"]
    values = {t: metrics[name]["value"] for t, metrics in summary["categories"].items()}
    return {title: TaskFigure(value) for title, value in values.items() if value is not None}


def _imported_task(run: StoredRun, members: Sequence[str]) -> Mapping[str, Any]:
    """What an import has counted over all categories of a task; empty if there is more in it."""
    if not members:
        return {}
    task = task_of(members[0])
    measured = {c for c in run.summary["categories"] if task_of(c) == task}
    metrics: Mapping[str, Any] = run.summary.get("tasks", {}).get(task, {})
    return metrics if measured == set(members) else {}


def _from_categories(run: StoredRun, members: Sequence[str]) -> TaskFigure | None:
    name, categories = run.summary["primary_speedup"], run.summary["categories"]
    whole = _imported_task(run, members).get(name, {}).get("value")
    if whole is not None:
        return TaskFigure(whole)
    metrics = [categories[member].get(name) or {} for member in members]
    known = [metric for metric in metrics if metric.get("value") is not None]
    if not known:
        return None
    weights = [metric["num_prompts"] for metric in known]
    total = sum(w * metric["value"] for w, metric in zip(weights, known, strict=True))
    return TaskFigure(total / sum(weights), is_exact=len(members) == 1)
