"""The tasks of Spec-Bench: columns of its leaderboard, and the question categories behind each.

Source: Xia et al. 2024 (Spec-Bench, arXiv 2401.07851) and the leaderboard of its repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MT_BENCH_CATEGORIES = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
)  # fmt: skip

TASK_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Multi-turn Conversation": MT_BENCH_CATEGORIES,
        "Translation": ("translation",),
        "Summa-rization": ("summarization",),
        "Question Answering": ("qa",),
        "Mathematical Reasoning": ("math_reasoning",),
        "Retrieval-aug. Generation": ("rag",),
    }
)
"""Column title -> categories, in the order of the leaderboard."""

_SHORT_NAMES = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")
_TASKS = {
    category: task
    for task, categories in zip(_SHORT_NAMES, TASK_GROUPS.values(), strict=True)
    for category in categories
}


def task_of(category: str) -> str:
    """The task of a question category; categories of other benchmarks are their own task."""
    return _TASKS.get(category, category)
