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

from primitives.fields import check_ngrams, check_range, check_words
from primitives.interfaces import DatastoreKind, Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.ngram_lookup import ngram_matches
from primitives.structures.suffix_array import TokenStore
from primitives.types import MAX_DRAFT_NODES, Candidate, Context


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
        num_tokens: Most tokens that are copied, in [1, 1024]. The paper's k counts the row of
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
        check_words(self)
        check_ngrams(self)
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)

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
        found = ngram_matches(prompt, output, min_ngram=self.min_ngram, max_ngram=self.max_ngram)
        if not found:
            return NO_MATCH
        match_len, end = found[0][0], int(found[0][1][0])
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
