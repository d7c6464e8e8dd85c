"""Two sequences beside each other: of token ids, or of characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def shared_prefix(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How many entries two sequences begin with alike; the place of the first that differs."""
    pairs = enumerate(zip(first, second, strict=False))
    shorter = min(len(first), len(second))
    return next((place for place, (a, b) in pairs if a != b), shorter)
