"""What the figures show, counted from rows or read from summaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.metrics import STEP_PHASES
from benchmarks.records import Turn
from benchmarks.statistics import MIN_PROMPTS, Interval, bootstrap, point, ratio
from benchmarks.steps import Steps

MAX_BINS = 16
NS_PER_MS = 1e6

Turns = Mapping[str, Sequence[Turn]]
"""Answers by prompt, with recorded steps."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A value with its 95 % interval.

    Attributes:
        x: Depth, or the output position where a bin begins.
        value: In the unit of the axis.
        interval: Low and high end; None of too few prompts.
    """

    x: int
    value: float
    interval: Interval | None = None


def tokens_per_step(turns: Turns) -> dict[int, float]:
    """Share of steps that output 1, 2, ... tokens, in this order, without gaps."""
    counts = Counter(num for turn in _all(turns) for num in _steps(turn).num_output)
    total = counts.total()
    if not total:
        return {}
    return {num: counts[num] / total for num in range(min(1, *counts), max(counts) + 1)}


def accept_at_depth(metrics: Mapping[str, Any]) -> list[Point]:
    """Share of steps whose kept path reached depth 1, 2, ..."""
    found = {
        int(name.partition("@")[2]): metric
        for name, metric in metrics.items()
        if name.startswith("accept@") and metric["value"] is not None
    }
    return [
        Point(x=depth, value=metric["value"], interval=interval_of(metric))
        for depth, metric in sorted(found.items())
    ]


def phase_times(turns: Turns) -> dict[str, float]:
    """Milliseconds per step by phase, the prefill left out; empty without steps."""
    num_steps = sum(len(_steps(turn)) for turn in _all(turns))
    if not num_steps:
        return {}
    totals = {p: sum(turn.phase_ns.get(p, 0) for turn in _all(turns)) for p in STEP_PHASES}
    return {phase: total / num_steps / NS_PER_MS for phase, total in totals.items()}


def phase_shares(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Shares of the time after the prefill by phase, as a run's summary tells."""
    shares = {phase: metrics.get(f"phase_share.{phase}") for phase in STEP_PHASES}
    return {phase: metric["value"] or 0.0 for phase, metric in shares.items() if metric}


def bin_width(answers: Sequence[Turns]) -> int:
    """A power of two, at least 4, with which the longest answer fits `MAX_BINS` bins."""
    longest = max((len(turn.output_ids) for turns in answers for turn in _all(turns)), default=1)
    width = 4
    while longest > width * MAX_BINS:
        width *= 2
    return width


def tau_along(turns: Turns, width: int) -> list[Point]:
    """Tokens per step by where in its answer a step begins.

    A step counts in the bin of the first token that it outputs; positions count from 0, the
    prefill's token. Bins that fewer than `MIN_PROMPTS` prompts reach are left out.

    Args:
        turns: Answers by prompt.
        width: Of a bin, in tokens.

    Returns:
        One point per bin, pooled over prompts, with a bootstrap interval over prompts.
    """
    sums: dict[int, dict[str, np.ndarray]] = {}
    for prompt_id, answers in turns.items():
        for turn in answers:
            position = 1
            for num in _steps(turn).num_output:
                prompts = sums.setdefault(position // width, {})
                prompts[prompt_id] = prompts.get(prompt_id, 0) + np.array([num, 1.0])
                position += num
    points = []
    for place, prompts in sorted(sums.items()):
        columns = np.stack(list(prompts.values()))
        value = point(columns, ratio)
        if value is not None and len(columns) >= MIN_PROMPTS:
            points.append(Point(x=place * width, value=value, interval=bootstrap(columns, ratio)))
    return points


def interval_of(metric: Mapping[str, Any]) -> Interval | None:
    """The interval of a metric as a summary holds it, if it has one."""
    return None if metric["interval"] is None else (metric["interval"][0], metric["interval"][1])


def _all(turns: Turns) -> list[Turn]:
    return [turn for answers in turns.values() for turn in answers]


def _steps(turn: Turn) -> Steps:
    if turn.steps is None:
        raise ValueError("the steps of an answer were not recorded")
    return turn.steps
