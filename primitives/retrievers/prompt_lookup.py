"""Prompt lookup: copy what followed an earlier occurrence of the text's last tokens.

The last n tokens (pending included) are looked up in the text itself, longest n first; the tokens
behind the match are the draft.

Source: Saxena 2023, prompt-lookup-decoding (repository apoorvumang/prompt-lookup-decoding);
`prompt_lookup_num_tokens` of Hugging Face transformers, generation/candidate_generator.py.
Cost: O(s) vectorised comparisons per propose and those of the hits, nothing per observe.
Deviations: `allow_short=False, match="first"` is the original rule (a match must be followed by
`num_tokens` tokens and lie more than n tokens before the end); `allow_short=True, match="first",
max_ngram=2` is the rule of transformers, but for EOS, which it drops from drafts. `match="all"` is
ours: distinct continuations, up to the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Int

from primitives.fields import check_ngrams, check_range, check_words
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.ngram_lookup import ngram_matches
from primitives.types import MAX_DRAFT_NODES, Candidate, Context


@RETRIEVERS.register("prompt_lookup")
@dataclass(kw_only=True)
class PromptLookup(Retriever):
    """Longest n-gram match in the text itself.

    Attributes:
        max_ngram: Longest n that is looked up, in tokens, at least `min_ngram`.
        min_ngram: Shortest n, in tokens, at least 1.
        num_tokens: Draft length behind the match, in tokens, in [1, 1024].
        match: Which occurrence is copied: the `first` (oldest), the `last` (most recent), or
            `all`: every distinct continuation, longer matches first, then more recent ones, each
            with the count of its occurrences behind a match of the same length.
        allow_short: Whether a match with fewer than `num_tokens` tokens behind it counts.
    """

    is_exact = True

    max_ngram: int = 3
    min_ngram: int = 1
    num_tokens: int = 10
    match: Literal["first", "last", "all"] = "first"
    allow_short: bool = True

    def __post_init__(self) -> None:
        check_words(self)
        check_ngrams(self)
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Continuations of earlier occurrences; scores are match lengths.

        Returns:
            One candidate for `first` and `last`, up to `limit` for `all`; none without a match.
        """
        ids, most = context.ids_with_pending, limit if self.match == "all" else min(limit, 1)
        found: dict[tuple[int, ...], Candidate] = {}
        for ngram, end in self._matches(ids) if most else ():
            if self._has_enough(found, most, ngram):
                break
            draft = tuple(ids[end : end + self.num_tokens].tolist())
            known = found.get(draft)
            if known is None and len(found) < most:
                found[draft] = Candidate(
                    token_ids=(context.pending_id, *draft),
                    score=float(ngram),
                    match_len=ngram,
                    recency=end,
                    source=self.name,
                )
            elif known is not None and known.match_len == ngram:
                found[draft] = replace(known, count=known.count + 1)
        return list(found.values())

    def _has_enough(self, found: dict[tuple[int, ...], Candidate], most: int, ngram: int) -> bool:
        """Whether neither another candidate nor another occurrence of one can come."""
        if len(found) < most:
            return False
        return self.match != "all" or next(reversed(found.values())).match_len > ngram

    def _matches(self, ids: Int[np.ndarray, "s"]) -> Iterator[tuple[int, int]]:
        """Pairs (n, end of a match), in the order in which they are to be tried."""
        num_ids = len(ids)
        for ngram, ends in ngram_matches(
            ids, ids, min_ngram=self.min_ngram, max_ngram=self.max_ngram
        ):
            if not self.allow_short:
                ends = ends[(ends + self.num_tokens <= num_ids) & (ends < num_ids - ngram)]
            for end in (ends if self.match == "first" else ends[::-1]).tolist():
                yield ngram, end
