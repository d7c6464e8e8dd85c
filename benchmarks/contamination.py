"""Whether a datastore's documents overlap with the data that methods will be tested on.

A store that holds the test set looks brilliant. A document overlaps if it shares an n-gram of words
with a test prompt or its reference (n = 13 is customary since Brown et al. 2020, arXiv 2005.14165,
appendix C), or if it asks what a test prompt of fewer words asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.datasets.base import Prompt
from benchmarks.documents import Document
from benchmarks.quality import words_of

Words = tuple[str, ...]


@dataclass(kw_only=True)
class ContaminationCheck:
    """Counts documents that overlap with test data, and drops them on demand.

    Attributes:
        prompts: The test data: turns and references; at least one prompt.
        ngram: Words per n-gram, at least 1.
        drops: Whether documents that overlap are left out.
    """

    prompts: tuple[Prompt, ...]
    ngram: int = 13
    drops: bool = False
    _test_ngrams: set[Words] = field(default_factory=set, init=False, repr=False)
    _short_turns: set[Words] = field(default_factory=set, init=False, repr=False)
    _met: set[Words] = field(default_factory=set, init=False, repr=False)
    _num_documents: int = field(default=0, init=False, repr=False)
    _overlapping: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.ngram < 1:
            raise ValueError(f"ngram must be ≥ 1, got {self.ngram}")
        if not self.prompts:
            raise ValueError("prompts must hold the test data, got none")
        for prompt in self.prompts:
            for text in (*prompt.turns, *prompt.references):
                self._test_ngrams.update(word_ngrams(text, self.ngram))
            turns = (tuple(words_of(turn)) for turn in prompt.turns)
            self._short_turns.update(turn for turn in turns if len(turn) < self.ngram)

    def filter(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents, those that overlap left out if they are to be dropped."""
        for document in documents:
            is_overlapping = self._overlaps(document)
            self._num_documents += 1
            if is_overlapping:
                self._overlapping.append(document.name)
            if not (is_overlapping and self.drops):
                yield document

    def report(self) -> dict[str, Any]:
        """What was found, as plain JSON values."""
        return {
            "ngram_words": self.ngram,
            "num_test_prompts": len(self.prompts),
            "num_documents": self._num_documents,
            "num_overlapping": len(self._overlapping),
            "num_dropped": len(self._overlapping) if self.drops else 0,
            "share_of_test_ngrams": len(self._met) / max(1, len(self._test_ngrams)),
            "overlapping": self._overlapping[:20],
        }

    def _overlaps(self, document: Document) -> bool:
        shared = {
            ngram
            for text in document.texts
            for ngram in word_ngrams(text, self.ngram)
            if ngram in self._test_ngrams
        }
        self._met |= shared
        return bool(shared) or any(
            tuple(words_of(text)) in self._short_turns for text in document.texts
        )


def word_ngrams(text: str, ngram: int) -> Iterator[Words]:
    """All n-grams of words, as `words_of` splits them."""
    words = words_of(text)
    return zip(*(words[start:] for start in range(ngram)), strict=False)


def num_overlapping(facts: Mapping[str, Any]) -> int | None:
    """Documents of a datastore that overlap with test data; None if nobody compared them."""
    overlap = (facts.get("report") or {}).get("overlap")
    return overlap["num_overlapping"] - overlap["num_dropped"] if overlap else None
