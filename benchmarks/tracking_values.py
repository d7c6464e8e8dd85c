"""What a tracker shows of a run: its metrics on one level, and one table row per prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.counts import num_output_tokens, num_step_tokens, num_steps
from benchmarks.records import Arm, Request

TABLE_COLUMNS = (
    "prompt_id", "category", "repeat", "output_tokens", "vanilla_output_tokens", "tau", "speedup",
    "error",
)  # fmt: skip


class RunningSums:
    """Tokens, steps and times of both arms, of prompts on which both succeeded."""

    def __init__(self) -> None:
        self._step_tokens = self._steps = 0
        self._tokens: dict[Arm, int] = {"vanilla": 0, "method": 0}
        self._wall_ns: dict[Arm, int] = {"vanilla": 0, "method": 0}

    def add(self, requests: Sequence[Request]) -> None:
        """A prompt's rows."""
        arms = {request.arm: request for request in requests if request.error is None}
        if not {"vanilla", "method"} <= arms.keys():
            return
        self._step_tokens += num_step_tokens(arms["method"])
        self._steps += num_steps(arms["method"])
        for arm in self._tokens:
            self._tokens[arm] += num_output_tokens(arms[arm])
            self._wall_ns[arm] += sum(turn.wall_ns for turn in arms[arm].turns)

    @property
    def tau(self) -> float | None:
        """As the metric `tau`; None before the first step."""
        return self._step_tokens / self._steps if self._steps else None

    @property
    def speedup(self) -> float | None:
        """As the run's primary speedup: of tokens per second, which for answers of equal lengths is
        that of times; None before the first answer.
        """
        if not self._wall_ns["method"]:
            return None
        ratio = self._wall_ns["vanilla"] / self._wall_ns["method"]
        return ratio * self._tokens["method"] / self._tokens["vanilla"]


def flatten_summary(summary: Mapping[str, Any]) -> dict[str, float | int | str | bool]:
    """A run's summary as wandb shows it: one level, no absent values.

    Returns:
        The counts by their names; each metric as `name`, with `/` for its points, and its interval
        as `name.low` and `name.high`; those of categories behind `categories/<category>/`.
    """
    flat = {key: x for key, x in summary.items() if isinstance(x, bool | int | float | str)}
    flat |= _flatten_metrics(summary["metrics"], "")
    for category, metrics in summary["categories"].items():
        flat |= _flatten_metrics(metrics, f"categories/{category}/")
    return flat


def _flatten_metrics(metrics: Mapping[str, Mapping[str, Any]], prefix: str) -> dict[str, float]:
    flat = {}
    for name, metric in metrics.items():
        key = prefix + name.replace(".", "/")
        if metric["value"] is not None:
            flat[key] = metric["value"]
        if metric["interval"] is not None:
            flat[f"{key}.low"], flat[f"{key}.high"] = metric["interval"]
    return flat


def table_row(requests: Sequence[Request], sums: RunningSums) -> list[Any]:
    """One prompt and repeat, in the order of `TABLE_COLUMNS`."""
    arms = {request.arm: request for request in requests}
    errors = [r.error for r in requests if r.error is not None and r.arm != "generate"]
    tokens = [
        num_output_tokens(arms[arm]) if arm in arms and arms[arm].error is None else None
        for arm in ("method", "vanilla")
    ]
    first = requests[0]
    error = f"{errors[0].type}: {errors[0].message}" if errors else None
    return [
        first.prompt_id, first.category, first.repeat, *tokens, sums.tau, sums.speedup, error
    ]  # fmt: skip
