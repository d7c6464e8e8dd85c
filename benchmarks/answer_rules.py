"""When an answer with another token in it is still right: what labels of mismatches rest on.

    the task states an answer   the answer stated is still the target's own (`own`), or still the
                                reference (`reference`)
    it says right or wrong      the answer is still right: aliases, tests
    neither                     ROUGE-L against the target's own answer is at least `min_rouge`

With `reference`, and for aliases and tests, a prompt that the target gets wrong says nothing.

Source: AutoJudge (Garipov et al. 2025, arXiv 2504.20039) asks whether the answer is still right;
its released code compares with what the target itself answered (garipovroma/autojudge,
src/find_important_tokens.py), which needs no model that is right. ROUGE-L is ours, and no more than
a stand-in: likeness of two texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.datasets.base import Prompt
from benchmarks.quality import rouge_l
from benchmarks.scoring import SCORERS
from benchmarks.scoring.final_number import are_equal, final_number

Compare = Literal["own", "reference"]
StillRight = Callable[[str], bool]
STATED = "gsm8k"
"""Scorer of tasks whose answer can be read off a text without knowing the right one."""
GRADED = "rouge_l"
"""Scorer that grades: no answer is right or wrong by it."""


@dataclass(frozen=True, kw_only=True)
class AnswerRule:
    """How answers are compared.

    Attributes:
        compare: Where an answer is stated, whether with the target's `own` or the `reference`.
        min_rouge: Least likeness where nothing else can be said, in [0, 1].
        allow_code_execution: Whether scorers may run what the model wrote.
    """

    compare: Compare = "own"
    min_rouge: float = 0.8
    allow_code_execution: bool = False

    def of(self, prompt: Prompt, own: str) -> StillRight | None:
        """The question to ask of answers to the first turn of a prompt.

        Args:
            prompt: With its task and references.
            own: The target's own answer.

        Returns:
            Tells whether a text is still right; None if the target's own answer gives nothing to
            keep: it is wrong, or states no number.

        Raises:
            ValueError: If the scorer does not exist, needs what the prompt has not, or runs code
                that may not run.
        """
        if not tells_right_from_wrong(prompt):
            return lambda text: rouge_l(own, text) >= self.min_rouge
        assert prompt.task is not None
        if prompt.task.scorer == STATED and self.compare == "own":
            return _same_number(own)
        return self._scored(prompt, own)

    def _scored(self, prompt: Prompt, own: str) -> StillRight | None:
        assert prompt.task is not None
        scorer = SCORERS.create(prompt.task.scorer)
        if scorer.runs_code and not self.allow_code_execution:
            raise ValueError(
                f"prompt {prompt.prompt_id!r}: answers are programs: allow_code_execution=true "
                "runs them"
            )

        def is_right(text: str) -> bool:
            score = scorer.score(prompt, 0, text)
            return score is not None and score.value == 1.0

        return is_right if is_right(own) else None


def tells_right_from_wrong(prompt: Prompt) -> bool:
    """Whether answers to a prompt are compared by what they say, not by likeness."""
    return prompt.task is not None and prompt.task.scorer != GRADED


def _same_number(own: str) -> StillRight | None:
    expected = final_number(own)
    if expected is None:
        return None

    def is_same(text: str) -> bool:
        found = final_number(text)
        return found is not None and are_equal(found, expected)

    return is_same
