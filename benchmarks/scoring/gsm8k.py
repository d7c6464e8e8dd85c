"""The final number of a worked answer, as GSM8K scores it.

Source: Cobbe et al. 2021 (arXiv 2110.14168), which compares the number after `####`. A chat model
does not write that mark unless it is asked to: the other places where its number is looked for are
ours (`benchmarks.scoring.final_number.final_number`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.datasets.base import Prompt
from benchmarks.scoring import SCORERS
from benchmarks.scoring.base import Score, Scorer
from benchmarks.scoring.final_number import are_equal, final_number
from benchmarks.scoring.references import reference_of


@SCORERS.register("gsm8k")
@dataclass(frozen=True, kw_only=True)
class Gsm8k(Scorer):
    """1 if the answer's final number equals the reference's, else 0."""

    metric: ClassVar[str] = "exact_match"

    def score(self, prompt: Prompt, turn: int, text: str) -> Score | None:
        """Scores the answer to one turn; the detail is the number found.

        Raises:
            ValueError: If the reference has no number.
        """
        reference = reference_of(prompt, turn)
        if reference is None:
            return None
        expected = final_number(reference)
        if expected is None:
            raise ValueError(
                f"references[{turn}] must hold a number, usually after ####, got {reference!r}"
            )
        found = final_number(text)
        if found is None:
            return Score(value=0.0, detail="no number in the answer")
        return Score(value=float(are_equal(found, expected)), detail=found)
