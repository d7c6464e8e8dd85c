"""Whether a datastore's documents overlap with the data that methods will be tested on.

A store that holds the test set looks brilliant. Two texts overlap if they share an n-gram of words;
n = 13 is customary since Brown et al. 2020 (arXiv 2005.14165, appendix C).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.datasets.base import Prompt
from benchmarks.documents import Document

_WORD = re.compile(r"\w+")


@dataclass(kw_only=True)
class ContaminationCheck:
    """Counts documents that share an n-gram of words with test data, and drops them on demand.

    Attributes:
        prompts: The test data: turns and references.
        ngram: Words per n-gram, at least 1.
        drops: Whether documents that overlap are left out.
    """

    prompts: tuple[Prompt, ...]
    ngram: int = 13
    drops: bool = False
    _test_ngrams: set[tuple[str, ...]] = field(init=False, repr=False)
    _met: set[tuple[str, ...]] = field(default_factory=set, init=False, repr=False)
    _num_documents: int = field(default=0, init=False, repr=False)
    _overlapping: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.ngram < 1:
            raise ValueError(f"ngram must be ≥ 1, got {self.ngram}")
        self._test_ngrams = set()
        for prompt in self.prompts:
            for text in (*prompt.turns, *prompt.references):
                self._test_ngrams.update(word_ngrams(text, self.ngram))

    def filter(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents, those that overlap left out if they are to be dropped."""
        for document in documents:
            shared = self._test_ngrams.intersection(word_ngrams(document.text, self.ngram))
            self._num_documents += 1
            self._met |= shared
            if shared:
                self._overlapping.append(document.name)
            if not (shared and self.drops):
                yield document

    def report(self) -> dict[str, Any]:
        """What was found, as plain JSON values."""
        return {
            "ngram_words": self.ngram,
            "num_documents": self._num_documents,
            "num_overlapping": len(self._overlapping),
            "num_dropped": len(self._overlapping) if self.drops else 0,
            "share_of_test_ngrams": len(self._met) / max(1, len(self._test_ngrams)),
            "overlapping": self._overlapping[:20],
        }


def word_ngrams(text: str, ngram: int) -> Iterator[tuple[str, ...]]:
    """All n-grams of lower-cased words, punctuation left out."""
    words = _WORD.findall(text.lower())
    return zip(*(words[start:] for start in range(ngram)), strict=False)
