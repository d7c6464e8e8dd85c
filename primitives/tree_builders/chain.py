"""Chain: the best candidate alone, one node per depth.

Source: the draft of Leviathan et al. 2023 (arXiv 2211.17192) and of prompt lookup decoding.
Cost: O(candidates + budget) per build.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from primitives.interfaces import TreeBuilder
from primitives.registry import TREE_BUILDERS
from primitives.types import Candidate, DraftTree, rank_candidates


@TREE_BUILDERS.register("chain")
@dataclass(kw_only=True, frozen=True)
class Chain(TreeBuilder):
    """The best candidate that starts with pending, as a chain."""

    is_monotone = True

    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        """The first `budget` tokens behind pending of the best candidate."""
        for best in rank_candidates(candidates):
            if best.token_ids[0] == pending_id:
                break
        else:
            return DraftTree.root_only(pending_id)
        best = best.cut(budget + 1)
        num_nodes = len(best.token_ids)
        return DraftTree.from_nodes(
            best.token_ids,
            range(-1, num_nodes - 1),
            sources=["", *[best.source] * (num_nodes - 1)],
            match_lens=[0, *[best.match_len] * (num_nodes - 1)],
            draft_probs=None if best.draft_probs is None else torch.as_tensor(best.draft_probs),
        )
