"""Short answers with aliases: TriviaQA, Natural Questions, and others with one alias per line.

Both texts are lower-cased and lose articles and punctuation. SQuAD's script deletes punctuation,
TriviaQA's puts a space for it; two texts match if they do under either rule, so that "U.S." is "US"
and "Paris-based" holds "Paris". Each character of Chinese, Japanese and Korean counts as a word.

Source: Rajpurkar et al. 2016 (arXiv 1606.05250) and Joshi et al. 2017 (arXiv 1705.03551), the
normalisation of their evaluation scripts; punctuation beyond ASCII is ours.
"""

from __future__ import annotations

import re
import string
import unicodedata
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.datasets.base import Prompt
from benchmarks.scoring import SCORERS
from benchmarks.scoring.base import Score, Scorer
from benchmarks.scoring.references import reference_of

ARTICLES = frozenset({"a", "an", "the"})
_SUBSTITUTES = ("", " ")
"""What punctuation becomes: SQuAD's rule and TriviaQA's."""
_CHARACTER = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])")


class _ShortAnswer(Scorer):
    """Base of both rules: the first alias that matches decides."""

    def score(self, prompt: Prompt, turn: int, text: str) -> Score | None:
        """Scores the answer to one turn; the detail is the alias that matched."""
        reference = reference_of(prompt, turn)
        if reference is None:
            return None
        for alias in filter(str.strip, reference.splitlines()):
            if any(self._is_match(text, alias, substitute) for substitute in _SUBSTITUTES):
                return Score(value=1.0, detail=alias.strip())
        return Score(value=0.0, detail="no alias matches")

    @abstractmethod
    def _is_match(self, text: str, alias: str, substitute: str) -> bool:
        """Whether the answer matches, with punctuation turned into `substitute`."""


@SCORERS.register("short_answer")
@dataclass(frozen=True, kw_only=True)
class ShortAnswer(_ShortAnswer):
    """1 if an alias stands in the answer as whole words: "The capital is Paris." gives Paris.

    This is what suits a chat model, whose answer is a sentence. It is not the exact match of
    published tables (`short_answer_exact`), and an answer that lists guesses or denies the right
    one gets 1 too.
    """

    metric: ClassVar[str] = "contains_answer"

    def _is_match(self, text: str, alias: str, substitute: str) -> bool:
        return _contains(words_of(text, substitute), words_of(alias, substitute))


@SCORERS.register("short_answer_exact")
@dataclass(frozen=True, kw_only=True)
class ShortAnswerExact(_ShortAnswer):
    """1 if the answer, its first line or its first sentence is an alias and nothing else.

    Published exact match takes the whole answer of a model that was shown short ones.
    """

    metric: ClassVar[str] = "exact_match"

    def _is_match(self, text: str, alias: str, substitute: str) -> bool:
        line = next(iter(text.strip().splitlines()), "")
        sentence = _SENTENCE_END.split(line, maxsplit=1)[0]
        wanted = words_of(alias, substitute)
        return any(words_of(part, substitute) == wanted for part in (text, line, sentence))


def words_of(text: str, substitute: str) -> list[str]:
    """Lower-cased words; articles are kept only where there is nothing else."""
    lowered = unicodedata.normalize("NFKC", text).lower()
    plain = "".join(substitute if _is_punctuation(char) else char for char in lowered)
    words = _CHARACTER.sub(r" \1 ", plain).split()
    return [word for word in words if word not in ARTICLES] or words


def _is_punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")


def _contains(words: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return False
    starts = range(len(words) - len(wanted) + 1)
    return any(words[start : start + len(wanted)] == wanted for start in starts)
