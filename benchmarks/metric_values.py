"""One metric as it is written down: value, unit, definition, interval, number of prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.definitions import Definition, define
from benchmarks.statistics import Interval, Statistic, bootstrap, point

Metrics = dict[str, dict[str, Any]]
"""By name: `value`, `unit`, `definition`, `interval` ([low, high] or None), `num_prompts`."""


def metric(
    name: str,
    columns: Sequence[np.ndarray],
    statistic: Statistic,
    definition: Definition | None = None,
) -> Metrics:
    """A function of sums over prompts, with its interval.

    Args:
        name: What it is filed under.
        columns: One number per prompt each.
        statistic: Of the sums of the columns.
        definition: Where it is not that of `definitions.DEFINITIONS`.
    """
    stacked = np.stack(columns, axis=1)
    interval = bootstrap(stacked, statistic)
    return entry(name, point(stacked, statistic), interval, len(stacked), definition)


def count(name: str, is_so: Mapping[Any, bool], definition: Definition | None = None) -> Metrics:
    """A number of prompts."""
    return entry(name, sum(is_so.values()), None, len(is_so), definition)


def entry(
    name: str,
    value: float | None,
    interval: Interval | None,
    num_prompts: int,
    definition: Definition | None = None,
) -> Metrics:
    """A value as it is; None where it is not defined or not known."""
    definition = definition or define(name)
    return {
        name: {
            "value": value,
            "unit": definition.unit,
            "definition": definition.definition_id,
            "interval": None if interval is None else list(interval),
            "num_prompts": num_prompts,
        }
    }
