"""What a turn's answer is compared with."""

from __future__ import annotations

from benchmarks.datasets.base import Prompt


def reference_of(prompt: Prompt, turn: int) -> str | None:
    """The reference of a turn (from 0), or None if it has none."""
    text = prompt.references[turn] if turn < len(prompt.references) else ""
    return text if text.strip() else None
