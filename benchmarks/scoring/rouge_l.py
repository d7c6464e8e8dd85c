"""ROUGE-L against the dataset's own reference: summaries, translations, free answers.

Source: Lin 2004, "ROUGE: a package for automatic evaluation of summaries"; `quality.rouge_l`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.datasets.base import Prompt
from benchmarks.quality import rouge_l
from benchmarks.scoring import SCORERS
from benchmarks.scoring.base import Score, Scorer
from benchmarks.scoring.references import reference_of


@SCORERS.register("rouge_l")
@dataclass(frozen=True, kw_only=True)
class RougeL(Scorer):
    """F1 of the longest common subsequence of words, in [0, 1].

    The metric's name tells it from `rouge_l`, which compares a method with vanilla.
    """

    metric: ClassVar[str] = "rouge_l_reference"

    def score(self, prompt: Prompt, turn: int, text: str) -> Score | None:
        """Scores the answer to one turn."""
        reference = reference_of(prompt, turn)
        return None if reference is None else Score(value=rouge_l(reference, text))
