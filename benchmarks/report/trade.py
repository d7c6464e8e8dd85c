"""Speed against quality: what each run gives up for its speed, and which runs nobody beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.report.curves import interval_of
from benchmarks.report.groups import Entry, Group
from benchmarks.statistics import Interval

RELATIVE = "relative_score."
SIMILARITY = "rouge_l"
VANILLA = "vanilla"


@dataclass(frozen=True, kw_only=True)
class Trade:
    """Speed and quality of one run.

    Attributes:
        label: Its name.
        style: Number of its colour and marker; -1 for vanilla.
        speed: Speedup, as a ratio.
        speed_interval: Of it, 95 %; None for vanilla and of too few prompts.
        quality: As a share of vanilla's.
        quality_interval: Of it; None if it is exact, or of too few prompts.
        is_dominated: Whether another is at least as good in both and better in one.
    """

    label: str
    style: int
    speed: float
    speed_interval: Interval | None = None
    quality: float
    quality_interval: Interval | None = None
    is_dominated: bool = False


def quality_metrics(group: Group) -> list[str]:
    """What quality is measured by: task scores over vanilla's, else ROUGE-L to its answers."""
    found = {name for entry in group.entries for name in entry.metrics if name.startswith(RELATIVE)}
    return sorted(found) or [SIMILARITY]


def quality_title(metric: str) -> str:
    """Axis title of a quality metric."""
    if metric == SIMILARITY:
        return "ROUGE-L F1 against vanilla's answers"
    return f"{metric.removeprefix(RELATIVE)} (share of vanilla's)"


def trades(group: Group, metric: str) -> list[Trade]:
    """Vanilla and the runs that have a speedup and this quality; a lossless one has 1."""
    found = [Trade(label=VANILLA, style=-1, speed=1.0, quality=1.0)]
    found += [trade for entry in group.entries if (trade := _trade(entry, metric)) is not None]
    return [replace(trade, is_dominated=is_dominated(trade, found)) for trade in found]


def is_dominated(trade: Trade, others: Sequence[Trade]) -> bool:
    """Whether one of the others is at least as good in both speed and quality, better in one."""
    return any(
        other.speed >= trade.speed
        and other.quality >= trade.quality
        and (other.speed, other.quality) != (trade.speed, trade.quality)
        for other in others
    )


def _trade(entry: Entry, metric: str) -> Trade | None:
    speed = entry.metrics.get(entry.run.summary["primary_speedup"])
    quality = entry.metrics.get(metric)
    is_certified = entry.run.summary.get("certificate", {}).get("status") != "failed"
    if quality is None and entry.is_lossless and is_certified:
        quality = {"value": 1.0, "interval": None}
    if speed is None or quality is None or speed["value"] is None or quality["value"] is None:
        return None
    return Trade(
        label=entry.label,
        style=entry.style,
        speed=speed["value"],
        speed_interval=interval_of(speed),
        quality=quality["value"],
        quality_interval=interval_of(quality),
    )
