"""What became of the output of a method that may change it: measures on one answer, or on two."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

REPEATED_NGRAM = 4


_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)


def words_of(text: str) -> list[str]:
    """Lower-cased words without punctuation; each character of Chinese, Japanese and Korean."""
    return _WORD.findall(text.lower())


def rouge_l(reference: str, text: str) -> float:
    """ROUGE-L: F1 of the longest common subsequence of words (`words_of`), in [0, 1].

    Two texts without a word are equal (1). Source: Lin 2004, "ROUGE: a package for automatic
    evaluation of summaries"; counted by the `rouge-score` package, without stemming.
    """
    if words_of(reference) == words_of(text):
        return 1.0
    return float(_scorer().score(reference, text)["rougeL"].fmeasure)


def repetition_index(token_ids: Sequence[int]) -> float:
    """Share of 4-grams that occurred earlier in the same answer, in [0, 1]; 0 for short answers."""
    ngrams = [
        tuple(token_ids[start : start + REPEATED_NGRAM])
        for start in range(len(token_ids) - REPEATED_NGRAM + 1)
    ]
    return 1.0 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


class _Words:
    """`words_of`, as `rouge-score` asks for it: its own words are ASCII only."""

    def tokenize(self, text: str) -> list[str]:
        return words_of(text)


@cache
def _scorer() -> Any:
    from rouge_score import rouge_scorer  # Slow to import, and of no use to lossless methods.

    return rouge_scorer.RougeScorer(["rougeL"], tokenizer=_Words())
