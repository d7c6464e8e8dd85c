"""Sequential stopping: an arm that is surely slower than the best finished run ends early.

A run looks at its rows after 8, 16, 32, ... prompts of its first pass, and stops where the interval
of its speedup lies wholly below that of the best run which a leaderboard would rank beside it, both
on the prompts that it has measured so far.

Looking often finds by chance what is not there. Each of k looks therefore takes intervals of level
1 - 0.05 / k (Bonferroni), so that all of them together miss a true speedup as rarely as one 95 %
interval does. That the best was chosen among several runs is not corrected; that two intervals
must not touch is stricter than a test of their difference. A prefix speaks for all prompts only in
a mixed order: nothing is looked at before every category has been met.

Source: Jennison and Turnbull 2000, Group Sequential Methods with Applications to Clinical Trials,
chapter 2 (repeated looks); Bonferroni's inequality for the correction.
Cost: per look the rows of the best run are read and two bootstraps computed; none of it is timed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets.base import Dataset
from benchmarks.files import RunFolderError, read_json
from benchmarks.leaderboard.boards import build_leaderboard
from benchmarks.leaderboard.conditions import conditions_of
from benchmarks.leaderboard.entries import Entry
from benchmarks.prompt_table import PromptTable
from benchmarks.records import Request
from benchmarks.results import StoredRun, read_runs
from benchmarks.run_files import ENVIRONMENT
from benchmarks.run_spec import RunSpec
from benchmarks.statistics import LEVEL, Interval, bootstrap, ratio_of_ratios

logger = logging.getLogger(__name__)

FIRST_LOOK = 8
"""In prompts; the bootstrap of fewer is no judge."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Why a run ended before its last prompt.

    Attributes:
        num_prompts: Prompts that had been measured.
        num_total: Prompts of the dataset.
        better: Label of the run that is faster.
        better_run_id: Its id.
        interval: Of this run's speedup.
        better_interval: Of the other's, on the same prompts.
        level: Of both intervals, in (0, 1).
    """

    num_prompts: int
    num_total: int
    better: str
    better_run_id: str
    interval: Interval
    better_interval: Interval
    level: float

    @property
    def reason(self) -> str:
        """In one line, with the figures."""
        (low, high), (other_low, other_high) = self.interval, self.better_interval
        return (
            f"after {self.num_prompts} of {self.num_total} prompts: speedup [{low:.2f}, {high:.2f}]"
            f" is below [{other_low:.2f}, {other_high:.2f}] of {self.better} "
            f"({self.better_run_id}) at level {self.level:.4g}; stop_early=false continues it"
        )

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return vars(self) | {
            "interval": list(self.interval),
            "better_interval": list(self.better_interval),
        }


def look_numbers(num_prompts: int) -> tuple[int, ...]:
    """After how many prompts a run of so many is looked at: 8, 16, 32, ... below the last."""
    looks = []
    look = FIRST_LOOK
    while look < num_prompts:
        looks.append(look)
        look *= 2
    return tuple(looks)


def check_order(dataset: Dataset) -> None:
    """Refuses an order of prompts in which no look can speak for all categories.

    Raises:
        ValueError: If a category begins behind the last look.
    """
    looks = look_numbers(len(dataset.prompts))
    first = {p.category: place for place, p in reversed(list(enumerate(dataset.prompts, start=1)))}
    if looks and max(first.values()) > looks[-1]:
        latest = max(first, key=first.__getitem__)
        raise ValueError(
            f"stop_early=true judges by the first {looks[-1]} of {len(dataset.prompts)} prompts at "
            f"most, but category {latest!r} of dataset {dataset.name} begins at prompt "
            f"{first[latest]}: mix them with order_seed=N, or with another N"
        )


def speedup_interval(
    requests: Sequence[Request], prompt_ids: frozenset[str], level: float
) -> Interval | None:
    """The interval of the primary speedup over some prompts.

    In tokens per second, which is the primary speedup of every run: where answers have equal
    lengths, the ratio of times is the same number.

    Returns:
        None if too few of the prompts were measured.
    """
    table = PromptTable.from_requests([r for r in requests if r.prompt_id in prompt_ids])
    if not table.categories:
        return None
    columns = [arm[name] for arm in (table.method, table.vanilla) for name in _RATE]
    return bootstrap(np.stack(columns, axis=1), ratio_of_ratios, level=level)


_RATE = ("output_tokens", "wall_ns")


class EarlyStopping:
    """Looks at one run while it is measured; vanilla, and who did not ask, is never stopped."""

    def __init__(self, spec: RunSpec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        is_wanted = spec.stop_early and spec.method.retriever is not None
        self.looks = look_numbers(len(spec.dataset.prompts)) if is_wanted else ()

    @property
    def level(self) -> float:
        """Of each interval, so that all looks together have the usual one."""
        return 1.0 - (1.0 - LEVEL) / max(1, len(self.looks))

    def look(self, num_prompts: int, requests: Sequence[Request]) -> Stop | None:
        """Judges the run after so many prompts of its first pass.

        Returns:
            Why to stop; None if this is no place to look, or there is no reason.

        Raises:
            RunFolderError: If the run's own folder, or the rows of the best run, cannot be read.
        """
        prompt_ids = frozenset(request.prompt_id for request in requests)
        if num_prompts not in self.looks or not self._speaks_for_all(requests):
            return None
        best = self._best()
        if best is None or best.run is None:
            return None
        own = speedup_interval(requests, prompt_ids, self.level)
        other = speedup_interval(best.run.requests, prompt_ids, self.level)
        if own is None or other is None or own[1] >= other[0]:
            return None
        stop = Stop(
            num_prompts=len(prompt_ids),
            num_total=len(self.spec.dataset.prompts),
            better=best.label,
            better_run_id=str(best.run.facts["run_id"]),
            interval=own,
            better_interval=other,
            level=self.level,
        )
        logger.info("stopped early %s", stop.reason)
        return stop

    def _speaks_for_all(self, requests: Sequence[Request]) -> bool:
        met = {request.category for request in requests}
        return met == {prompt.category for prompt in self.spec.dataset.prompts}

    def _best(self) -> Entry | None:
        """The leader of the runs that a leaderboard ranks in one table with this one."""
        # results/<model>/<dataset>: runs of other models or datasets are never ranked beside it.
        runs, _ = read_runs([self.folder.parent.parent])
        own = conditions_of(self._as_stored())
        peers = [run for run in runs if run.has_rows and conditions_of(run) == own]
        rows = [row for board in build_leaderboard(peers).boards for row in board.rows]
        ranked = [row.entry for row in rows if row.rank and not row.entry.has_failures]
        return ranked[0] if ranked else None

    def _as_stored(self) -> StoredRun:
        """This run as far as it is written down."""
        env = read_json(self.folder / ENVIRONMENT)
        if env is None:
            raise RunFolderError(f"{self.folder} has lost its {ENVIRONMENT} while it was measured")
        return StoredRun(
            path=self.folder, summary={"run": env["run"]}, env=env, config=self.spec.config
        )
