"""What scorers of programming tasks share: an answer becomes a program, and the sandbox runs it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.datasets.base import Prompt
from benchmarks.scoring.base import Score, Scorer
from benchmarks.scoring.sandbox import Limits, Source, run_program


@dataclass(frozen=True, kw_only=True)
class ProgramScorer(Scorer):
    """1 if the first turn's program passes its tests, else 0.

    One answer is scored, so that its mean is pass@1. Source: Chen et al. 2021 (arXiv 2107.03374),
    section 2.1.

    Attributes:
        timeout_s: Wall time of one program, in seconds, above 0. A machine that is busy with
            something else can make slow programs fail.
        memory_mb: Address space of one program, in MiB, at least 64.
    """

    metric: ClassVar[str] = "pass@1"
    runs_code: ClassVar[bool] = True

    timeout_s: float = 5.0
    memory_mb: int = 1024

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s must be > 0, got {self.timeout_s}")
        if self.memory_mb < 64:
            raise ValueError(f"memory_mb must be ≥ 64, got {self.memory_mb}")

    def score(self, prompt: Prompt, turn: int, text: str) -> Score | None:
        """Runs the program of an answer; None for later turns, which have no tests.

        Raises:
            ValueError: If the task's data are not what the scorer needs.
            OSError: If no process or no temporary folder can be made.
        """
        if turn > 0:
            return None
        sources = self._program({} if prompt.task is None else prompt.task.data, text)
        if sources is None:
            return Score(value=0.0, detail="no code in the answer")
        limits = Limits(wall_s=self.timeout_s, memory_bytes=self.memory_mb << 20)
        outcome = run_program(sources, limits)
        return Score(value=float(outcome.status == "passed"), detail=outcome.detail)

    @abstractmethod
    def _program(self, data: Mapping[str, Any], text: str) -> Sequence[Source] | None:
        """The parts of the program, or None if the answer holds no code.

        Raises:
            ValueError: If the data are not what is needed.
        """


def text_of(data: Mapping[str, Any], key: str) -> str:
    """A text of a task's data.

    Raises:
        ValueError: If it is missing or no text.
    """
    value = data.get(key)
    if not isinstance(value, str):
        raise ValueError(f"task.data[{key!r}] must be a text, got {value!r}")
    return value
