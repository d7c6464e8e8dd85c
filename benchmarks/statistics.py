"""Intervals by bootstrap over prompts, for any function of sums over prompts.

A prompt is one cluster: its arms, turns, repeats and steps are drawn together, so that a ratio of
two arms is paired and the steps of one answer do not pass for independent observations. The same
seed draws the same prompts for every metric. Plain percentiles are too narrow for few prompts; the
expanded ones are as wide as a t interval would be where the statistic is a mean.

Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13 (percentile method);
Hesterberg 2015, What Teachers Should Know About the Bootstrap, section 5.1 (expanded percentiles).
Cost: one [b, p] by [p, k] product for b resamples of p prompts and k columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import stats

NUM_RESAMPLES = 10_000
LEVEL = 0.95
MIN_PROMPTS = 5
"""Of fewer prompts there are so few different resamples that their quantiles mean nothing."""
MIN_DEFINED = 0.99
"""If resamples divide by zero more often, an interval would show the lucky ones only."""

Interval = tuple[float, float]
Verdict = Literal["faster", "slower", "no difference", "too few prompts"]

Statistic = Callable[[np.ndarray], np.ndarray]
"""Sums [..., k] -> values [...]: what a metric makes of the sums of its columns."""


def ratio(sums: np.ndarray) -> np.ndarray:
    """First column over second."""
    return np.asarray(sums[..., 0] / sums[..., 1])


def ratio_of_ratios(sums: np.ndarray) -> np.ndarray:
    """First over second, over third over fourth."""
    return np.asarray((sums[..., 0] / sums[..., 1]) / (sums[..., 2] / sums[..., 3]))


def exp_ratio(sums: np.ndarray) -> np.ndarray:
    """Exponential of first over second: a geometric mean, from sums of logarithms."""
    return np.asarray(np.exp(sums[..., 0] / sums[..., 1]))


def point(columns: Float[np.ndarray, "p k"], statistic: Statistic) -> float | None:
    """The statistic of all prompts; None where it is not defined (a division by zero)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(columns.sum(axis=0)))
    return value if np.isfinite(value) else None


def bootstrap(
    columns: Float[np.ndarray, "p k"],
    statistic: Statistic,
    *,
    num_resamples: int = NUM_RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval | None:
    """The percentile interval of a statistic.

    Args:
        columns: One row per prompt.
        statistic: Function of the sums over prompts.
        num_resamples: Draws of p prompts with replacement.
        level: Share of the resamples inside the interval, in (0, 1).
        seed: Seed of the draws.

    Returns:
        Lower and upper end; None for fewer than `MIN_PROMPTS`, or if the statistic is not defined
        in more than a few resamples.
    """
    num_prompts = len(columns)
    if num_prompts < MIN_PROMPTS:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(_weights(num_prompts, num_resamples, seed) @ columns)
    values = values[np.isfinite(values)]
    if len(values) < MIN_DEFINED * num_resamples:
        return None
    tail = _expanded_tail(level, num_prompts)
    low, high = np.quantile(values, [tail, 1.0 - tail])
    return float(low), float(high)


def verdict(interval: Interval | None, null: float = 1.0) -> Verdict:
    """What a speedup's interval allows to say; a difference inside it is none."""
    if interval is None:
        return "too few prompts"
    low, high = interval
    if low > null:
        return "faster"
    return "slower" if high < null else "no difference"


def quality_verdict(interval: Interval | None) -> str:
    """The same for the change of a score, whose interval holds 0 if there may be none."""
    words = {"faster": "better", "slower": "worse"}
    word = verdict(interval, null=0.0)
    return words.get(word, word)


@lru_cache(maxsize=256)
def _expanded_tail(level: float, num_prompts: int) -> float:
    """What to cut off at each end, so that the interval of a mean is that of Student's t."""
    quantile = float(stats.t.ppf(0.5 + level / 2.0, num_prompts - 1))
    return float(stats.norm.cdf(-quantile * np.sqrt(num_prompts / (num_prompts - 1))))


@lru_cache(maxsize=16)
def _weights(num_prompts: int, num_resamples: int, seed: int) -> Float[np.ndarray, "b p"]:
    """How often each prompt is drawn in each resample."""
    generator = np.random.default_rng(seed)
    share = np.full(num_prompts, 1.0 / num_prompts)
    weights = generator.multinomial(num_prompts, share, size=num_resamples).astype(np.float64)
    weights.flags.writeable = False
    return weights
