"""LLMA: copy from reference documents what followed there the last tokens of the output.

The last n tokens of the output (pending included, the prompt left out) are looked up in the
documents, longest n first, and what follows their first occurrence is the draft. The documents are
the prompt, or those of a token store.

    n = the largest in [min_ngram, max_ngram] such that output[-n:] occurs
    draft = documents[e : e + num_tokens], e = the end of its first occurrence

Source: Yang et al. 2023, LLMA (arXiv 2304.04487), section 3; repository microsoft/LMOps, llma.
Cost: O(s + h * max_ngram) vectorised comparisons per propose in a prompt of s tokens that holds the
last one h times; in a store O(log n) comparisons and a minimum over all h occurrences of the match.
Nothing per observe.
Deviations: ids are compared, not words; documents are not cut to 768 tokens; an occurrence at the
very end of a document, which nothing follows, does not count; an EOS ends the draft.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from primitives.interfaces import DatastoreKind, Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.suffix_array import TokenStore
from primitives.types import Candidate, Context


class _Match(NamedTuple):
    """The first occurrence of the longest match; of length 0 if there is none."""

    match_len: int
    end: int
    behind: list[int]


NO_MATCH = _Match(0, 0, [])


@RETRIEVERS.register("reference_copy")
@dataclass(kw_only=True)
class ReferenceCopy(Retriever):
    """First occurrence of the output's last tokens in reference documents.

    Attributes:
        source: Where the documents are: the `prompt` as one document, or a `datastore` of tokens.
        min_ngram: Trigger length: shortest match that is copied from, in tokens, at least 1.
        max_ngram: Longest match that is looked for, in tokens, at least `min_ngram`.
        num_tokens: Most tokens that are copied, at least 1. The paper's k counts the row of
            pending, too: its k = 20 is 19 here.
    """

    is_exact = True
    datastore = "tokens"

    source: Literal["prompt", "datastore"] = "prompt"
    min_ngram: int = 1
    max_ngram: int = 5
    num_tokens: int = 19
    _store: TokenStore | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.source not in ("prompt", "datastore"):
            raise ValueError(f"source must be prompt or datastore, got {self.source!r}")
        if self.min_ngram < 1:
            raise ValueError(f"min_ngram must be ≥ 1, got {self.min_ngram}")
        if self.max_ngram < self.min_ngram:
            raise ValueError(
                f"max_ngram must be ≥ min_ngram ({self.min_ngram}), got {self.max_ngram}"
            )
        if self.num_tokens < 1:
            raise ValueError(f"num_tokens must be ≥ 1, got {self.num_tokens}")

    @property
    def wanted_datastore(self) -> DatastoreKind | None:
        """None with `source="prompt"`."""
        return self.datastore if self.source == "datastore" else None

    def attach(self, store: TokenStore) -> None:
        """Sets the store whose documents are copied from; it may be shared.

        Raises:
            TypeError: With `source="prompt"`.
        """
        if self.source == "prompt":
            super().attach(store)
        self._store = store
        # Compiles the search, so that no step has to.
        store.longest_match(np.zeros(1, dtype=np.int64), min_len=1, max_len=1)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """What follows the first occurrence; its score is the length of the match.

        Returns:
            At most one candidate; none without a match.

        Raises:
            RuntimeError: With `source="datastore"`, if no store is attached.
        """
        output = context.ids_with_pending[context.num_prompt_tokens :]
        if self.source == "prompt":
            match = self._in_prompt(context.ids_with_pending[: context.num_prompt_tokens], output)
        else:
            match = self._in_store(output)
        if limit < 1 or match.match_len < self.min_ngram:
            return []
        return [
            Candidate(
                token_ids=context.until_eos((context.pending_id, *match.behind)),
                score=float(match.match_len),
                match_len=match.match_len,
                recency=match.end,
                source=self.name,
            )
        ]

    def _in_prompt(self, prompt: Int[np.ndarray, "s"], output: Int[np.ndarray, "o"]) -> _Match:
        """The ends of longer matches are among those of shorter ones: sifted token by token."""
        match_len, ends = 0, np.arange(1, len(prompt))
        for length in range(1, min(self.max_ngram, len(output)) + 1):
            ends = ends[ends >= length]
            ends = ends[prompt[ends - length] == output[-length]]
            if len(ends) == 0:
                break
            match_len, end = length, int(ends[0])
        if match_len == 0:
            return NO_MATCH
        return _Match(match_len, end, prompt[end : end + self.num_tokens].tolist())

    def _in_store(self, output: Int[np.ndarray, "o"]) -> _Match:
        if self._store is None:
            raise RuntimeError(f"retriever {self.name!r} searches a token store: attach one first")
        found = self._store.longest_match(output, min_len=self.min_ngram, max_len=self.max_ngram)
        if found.match_len == 0:
            return NO_MATCH
        number, low, high = found.ranges[0]  # Chunks hold the documents in their order.
        chunk = self._store.chunks[number]
        end = int(chunk.order[low:high].min())
        behind = chunk.continuation(end, self.num_tokens)
        return _Match(found.match_len, self._store.offsets[number] + end, behind)
