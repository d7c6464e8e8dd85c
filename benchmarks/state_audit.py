"""Whether a retriever's memory of earlier prompts changes results, and by how much.

One method is run under several conditions on the same prompts: its state reset before each prompt,
carried from prompt to prompt (in the dataset's order and in shuffled ones), and warmed up with
training prompts. A method without memory does exactly the same in all of them. For one with memory
the effect is the difference of tau to `reset`, paired by prompt. Greedy decoding only: under
sampling the steps of two runs differ by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.console import new_table
from benchmarks.counts import num_step_tokens, num_steps
from benchmarks.metrics import summarize
from benchmarks.records import Request
from benchmarks.statistics import Interval, bootstrap, point
from benchmarks.summary_text import show

CONDITIONS: Mapping[str, Mapping[str, Any]] = {
    "reset": {"state": "reset", "order_seed": None},
    "carry": {"state": "carry", "order_seed": None},
    "shuffled 1": {"state": "carry", "order_seed": 1},
    "shuffled 2": {"state": "carry", "order_seed": 2},
    "warm": {"state": "warm", "order_seed": None},
}
"""Overrides of the configuration, by name; the first one is what the others are compared with. The
shuffled ones carry their state through another order of the prompts."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a condition does to a method.

    Attributes:
        name: Of the condition.
        tau: Acceptance length, in tokens per step.
        change: tau minus that of `reset`, over the prompts that both answered.
        interval: Of the change; None for fewer than five prompts.
        thirds: tau in the first, second and last third of the prompts, as they were answered.
        num_changed: Prompts whose steps are not those of `reset`.
        num_prompts: Prompts that both conditions answered.
        speedup: The metric, with its interval.
    """

    name: str
    tau: float | None
    change: float | None
    interval: Interval | None
    thirds: tuple[float | None, ...]
    num_changed: int
    num_prompts: int
    speedup: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """What the rows allow to say; `the same` if all steps are equal."""
        if not self.num_changed:
            return "the same"
        if self.interval is None:
            return "too few prompts"
        low, high = self.interval
        if low <= 0.0 <= high:
            return "no difference"
        return "longer" if low > 0.0 else "shorter"


def audit(runs: Mapping[str, Sequence[Request]], *, is_lossless: bool) -> list[Effect]:
    """Compares conditions with the first one.

    Args:
        runs: Rows by condition, in the order in which they were measured.
        is_lossless: As in `summarize`.

    Raises:
        ValueError: If a condition has no row of the method.
    """
    by_name = {name: _method_rows(name, rows) for name, rows in runs.items()}
    reset = next(iter(by_name.values()))
    return [
        _effect(name, rows, reset, runs[name], is_lossless=is_lossless)
        for name, rows in by_name.items()
    ]


def render_audit(effects: Sequence[Effect]) -> Table:
    """One line per condition; `changed` counts prompts whose steps are not those of the first."""
    table = new_table("state", "tau", "change [95 %]", "", "by thirds", "changed", "speedup [95 %]")
    for effect in effects:
        table.add_row(
            effect.name,
            _number(effect.tau),
            _change(effect),
            effect.verdict,
            " ".join(map(_number, effect.thirds)),
            f"{effect.num_changed}/{effect.num_prompts}",
            show(effect.speedup, "x"),
        )
    return table


def _effect(
    name: str,
    rows: Mapping[str, Request],
    reset: Mapping[str, Request],
    requests: Sequence[Request],
    *,
    is_lossless: bool,
) -> Effect:
    shared = [prompt_id for prompt_id in rows if prompt_id in reset]
    columns = np.array([[*_sums(rows[p]), *_sums(reset[p])] for p in shared], dtype=np.float64)
    summary = summarize(requests, is_greedy=True, is_lossless=is_lossless)
    return Effect(
        name=name,
        tau=_tau(list(rows.values())),
        change=point(columns, _difference),
        interval=bootstrap(columns, _difference),
        thirds=_thirds(list(rows.values())),
        num_changed=sum(_steps(rows[p]) != _steps(reset[p]) for p in shared),
        num_prompts=len(shared),
        speedup=summary["metrics"][summary["primary_speedup"]],
    )


def _method_rows(name: str, requests: Sequence[Request]) -> dict[str, Request]:
    """The method's answers in the first repeat, in the order of measurement."""
    rows = {r.prompt_id: r for r in requests if (r.arm, r.repeat, r.error) == ("method", 0, None)}
    if not rows:
        raise ValueError(f"state={name!r} has no answer of the method")
    return rows


def _sums(request: Request) -> tuple[int, int]:
    return num_step_tokens(request), num_steps(request)


def _steps(request: Request) -> list[tuple[int, ...]]:
    """What happened in each step, times left out."""
    return [t.steps.num_accepted + t.steps.num_draft_nodes for t in request.turns if t.steps]


def _tau(requests: Sequence[Request]) -> float | None:
    tokens, steps = sum(map(num_step_tokens, requests)), sum(map(num_steps, requests))
    return tokens / steps if steps else None


def _thirds(requests: Sequence[Request]) -> tuple[float | None, ...]:
    """How tau develops while prompts are answered."""
    ends = [round(len(requests) * part / 3) for part in range(4)]
    return tuple(_tau(requests[first:last]) for first, last in pairwise(ends))


def _difference(sums: np.ndarray) -> np.ndarray:
    """tau of the first two columns minus tau of the last two."""
    return np.asarray(sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _change(effect: Effect) -> str:
    if effect.change is None or effect.interval is None:
        return _number(effect.change)
    return f"{effect.change:+.2f} [{effect.interval[0]:+.2f}, {effect.interval[1]:+.2f}]"
