"""Aligned prompt lookup: copied text, beside it what the target itself would have written there.

The spine of the draft is what followed an earlier occurrence of the text's last tokens. Where the
copied token lies in the prompt and was not the target's most probable one at prefill, the tokens
that were get into the draft as siblings of it. Nothing follows a sibling.

Source: AASD (Wang et al. 2025, arXiv 2505.13204), alignment sampling and retrieval.
Cost: O(s) vectorised comparisons per propose and those of the hits, nothing per observe; the
prefill keeps the `PROMPT_TOP_K` most probable tokens of every prompt position.
Deviations: siblings are the most probable tokens, not sampled ones. One occurrence is copied. The
target's choices in its own output are not recorded: copied output counts as aligned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Int

from primitives.fields import check_ngrams, check_range, check_words
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.ngram_lookup import ngram_matches
from primitives.types import MAX_DRAFT_NODES, PROMPT_TOP_K, SIBLING_SOURCE, Candidate, Context


@RETRIEVERS.register("aligned_prompt_lookup")
@dataclass(kw_only=True)
class AlignedPromptLookup(Retriever):
    """Longest n-gram match in the text itself, with the target's own choices as siblings.

    Attributes:
        max_ngram: Longest n that is looked up, in tokens, at least `min_ngram`.
        min_ngram: Shortest n, in tokens, at least 1.
        num_tokens: Draft length behind the match, in tokens, in [1, 1024].
        match: Which occurrence is copied: the `first` (oldest) or the `last` (most recent).
        num_siblings: Most siblings per copied token, in [0, PROMPT_TOP_K].
    """

    needs = frozenset({"prompt_top_ids"})

    max_ngram: int = 3
    min_ngram: int = 1
    num_tokens: int = 10
    match: Literal["first", "last"] = "last"
    num_siblings: int = 2
    _top_ids: Int[np.ndarray, "s k"] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_words(self)
        check_ngrams(self)
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)
        check_range(self, "num_siblings", least=0, most=PROMPT_TOP_K)

    def begin(self, context: Context) -> None:
        """Keeps the target's choices at the prompt's positions."""
        self._top_ids = context.prompt_top_ids

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """The spine, then siblings by depth and probability.

        Returns:
            At most `limit` candidates, each with a lower score than the one before; none without a
            match.
        """
        ids = context.ids_with_pending
        ngram, end = self._match(ids)
        if limit < 1 or not ngram:
            return []
        spine = (context.pending_id, *ids[end : end + self.num_tokens].tolist())
        candidates = [Candidate(token_ids=spine, match_len=ngram, recency=end, source=self.name)]
        for depth, copied in enumerate(spine[1:], start=1):
            for sibling in self._siblings(end + depth - 2, copied):
                if len(candidates) == limit:
                    return candidates
                candidates.append(
                    Candidate(
                        token_ids=(*spine[:depth], sibling),
                        score=-float(len(candidates)),
                        source=SIBLING_SOURCE,
                    )
                )
        return candidates

    def _match(self, ids: Int[np.ndarray, "s"]) -> tuple[int, int]:
        """The longest n with a match and the end of it; n is 0 without one."""
        found = ngram_matches(ids, ids, min_ngram=self.min_ngram, max_ngram=self.max_ngram)
        if not found:
            return 0, len(ids)
        ngram, ends = found[0]
        return ngram, int(ends[0] if self.match == "first" else ends[-1])

    def _siblings(self, position: int, copied: int) -> list[int]:
        """What the target would have written behind `position`, if not the copied token.

        Positions without a record (those behind the prompt) count as aligned.
        """
        if self._top_ids is None or position >= len(self._top_ids):
            return []
        top_ids = self._top_ids[position].tolist()
        if top_ids[0] == copied:
            return []
        return [token_id for token_id in top_ids if token_id != copied][: self.num_siblings]
