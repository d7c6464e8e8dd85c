"""What a task scorer is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.datasets.base import Prompt


@dataclass(frozen=True, kw_only=True)
class Score:
    """How good one answer is.

    Attributes:
        value: In [0, 1]; 1 is best.
        detail: What the value rests on, for whoever doubts it: the number found in the answer, the
            test that failed.
    """

    value: float
    detail: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.value <= 1.0:
            raise ValueError(f"value must be in [0, 1], got {self.value}")


class Scorer(ABC):
    """Base of all scorers: a frozen keyword-only dataclass, usually without fields.

    Attributes:
        name: Registered name, set by the registry.
        metric: What the mean of its values is called, e.g. `exact_match`.
        runs_code: Whether it executes what a model wrote; only with `allow_code_execution=true`.
    """

    name: ClassVar[str] = ""
    metric: ClassVar[str] = ""
    runs_code: ClassVar[bool] = False

    @abstractmethod
    def score(self, prompt: Prompt, turn: int, text: str) -> Score | None:
        """Scores the answer to one turn.

        Args:
            prompt: The prompt, with its references and its task.
            turn: From 0.
            text: The answer, special tokens left out.

        Returns:
            The score; None if there is nothing to compare with.

        Raises:
            ValueError: If the prompt's reference or task is not what this scorer needs.
        """
