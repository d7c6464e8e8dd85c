"""Runs -> tables: grouped by conditions, ranked by overall speedup.

A run is called lower than the leader only if their 95 % intervals do not overlap. That is unpaired
and conservative: intervals may overlap although a paired comparison would tell the runs apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.files import RunFolderError
from benchmarks.leaderboard.conditions import (
    Conditions,
    Facts,
    conditions_of,
    details_that_differ,
)
from benchmarks.leaderboard.entries import VANILLA, Entry, entries_of
from benchmarks.leaderboard.tasks import TaskFigure, Tasks, task_columns, task_figures
from benchmarks.results import StoredRun, Unusable
from benchmarks.statistics import Interval, verdict

NUM_MEDALS = 3

Standing = Literal["leader", "no difference", "lower", "unknown", ""]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line in its place.

    Attributes:
        entry: What is known of the run.
        rank: From 1, by overall speedup; None for vanilla, for a run without a speedup, for one
            that was stopped early and for a lossless method whose certificate failed.
        standing: Against the leader of the table; empty for lines without a rank.
    """

    entry: Entry
    rank: int | None = None
    standing: Standing = ""

    @property
    def medal(self) -> int | None:
        """1 to `NUM_MEDALS` for the best runs that are faster than vanilla on all their prompts."""
        is_faster = verdict(self.entry.interval) == "faster" and not self.entry.has_failures
        return self.rank if self.rank and self.rank <= NUM_MEDALS and is_faster else None


@dataclass(frozen=True, kw_only=True)
class Board:
    """One table.

    Attributes:
        conditions: What all its runs have in common.
        differing: What sets it apart from tables that look alike.
        tasks: Columns of tasks.
        rows: From best to worst, vanilla at 1.00; broken runs last.
    """

    conditions: Conditions
    differing: Facts
    tasks: Tasks
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """All tables, and what could not be put into one.

    Attributes:
        boards: Tables of one device side by side, the newest measurements first.
        left_out: Folders that are in no table, with the reason.
    """

    boards: tuple[Board, ...]
    left_out: tuple[Unusable, ...]


def build_leaderboard(runs: Sequence[StoredRun], unusable: Sequence[Unusable] = ()) -> Leaderboard:
    """Groups and ranks runs.

    Args:
        runs: Finished runs, in any order.
        unusable: Folders that could not be read; they are passed on.
    """
    left_out = list(unusable)
    groups: dict[Conditions, list[StoredRun]] = {}
    for run in _distinct(runs, left_out):
        reason = _why_unrankable(run)
        if reason is None:
            groups.setdefault(conditions_of(run), []).append(run)
        else:
            left_out.append(Unusable(path=run.path, reason=reason))
    differing = details_that_differ(groups)
    boards = [_board(key, groups[key], differing[key], left_out) for key in _in_order(groups)]
    return Leaderboard(boards=tuple(filter(None, boards)), left_out=tuple(left_out))


def _distinct(runs: Sequence[StoredRun], left_out: list[Unusable]) -> list[StoredRun]:
    """Without copies: a run of the same id with the very same figures; one with rows is kept."""
    found: dict[tuple[str, str], StoredRun] = {}
    for run in sorted(runs, key=lambda run: not run.has_rows):
        key = (str(run.facts["run_id"]), json.dumps(run.summary["metrics"], sort_keys=True))
        first = found.setdefault(key, run)
        if first is not run:
            left_out.append(Unusable(path=run.path, reason=f"a copy of {first.path}"))
    return list(found.values())


def _why_unrankable(run: StoredRun) -> str | None:
    summary = run.summary
    if not summary["num_measured"]:
        first = next(iter(summary["failures"]), None)
        because = f"; the first failed with {first['type']}: {first['message']}" if first else ""
        return f"{run.facts['method']}: no prompt of {summary['num_prompts']} was measured{because}"
    if not summary.get("is_one_machine", True):
        return f"{run.facts['method']}: measured on more than one machine or with several versions"
    return None


def _in_order(groups: dict[Conditions, list[StoredRun]]) -> list[Conditions]:
    newest_first = sorted(groups, key=lambda key: _newest(groups[key]), reverse=True)
    return sorted(newest_first, key=lambda key: (key.device, key.dataset))


def _newest(runs: Sequence[StoredRun]) -> str:
    sessions = [session for run in runs for session in run.env.get("sessions") or []]
    return max((str(session.get("time", "")) for session in sessions), default="")


def _board(
    conditions: Conditions,
    runs: Sequence[StoredRun],
    differing: Facts,
    left_out: list[Unusable],
) -> Board | None:
    """The table of a group; None if no run of it can be shown."""
    categories = [category for run in runs for category in run.summary["categories"]]
    tasks = task_columns(list(dict.fromkeys(categories)))
    figures: list[tuple[StoredRun, dict[str, TaskFigure]]] = []
    for run in runs:
        try:
            figures.append((run, task_figures(run, tasks)))
        except RunFolderError as error:
            left_out.append(Unusable(path=run.path, reason=str(error)))
    if not figures:
        return None
    rows = _rank([*entries_of(figures), _baseline(tasks)])
    return Board(conditions=conditions, differing=differing, tasks=tasks, rows=rows)


def _baseline(tasks: Tasks) -> Entry:
    return Entry(label=VANILLA, tasks=dict.fromkeys(tasks, TaskFigure(1.0)))


def _rank(entries: Sequence[Entry]) -> tuple[Row, ...]:
    ordered = sorted(entries, key=_place)
    ranked = [e for e in ordered if _can_be_ranked(e)]
    ranks = {id(entry): rank for rank, entry in enumerate(ranked, start=1)}
    return tuple(
        Row(entry=e, rank=ranks[id(e)], standing=_standing(ranked[0], e))
        if id(e) in ranks
        else Row(entry=e)
        for e in ordered
    )


def _can_be_ranked(entry: Entry) -> bool:
    is_whole = not (entry.is_broken or entry.is_stopped)
    return is_whole and not entry.is_baseline and entry.overall is not None


def _place(entry: Entry) -> tuple[bool, float, str]:
    overall = entry.overall
    return entry.is_broken, math.inf if overall is None else -overall, entry.label


def _standing(leader: Entry, entry: Entry) -> Standing:
    if entry is leader:
        return "leader"
    if leader.interval is None or entry.interval is None:
        return "unknown"
    return "no difference" if _overlap(leader.interval, entry.interval) else "lower"


def _overlap(first: Interval, second: Interval) -> bool:
    return first[0] <= second[1] and second[0] <= first[1]
