"""Branches: every candidate hangs under node 0 on its own, in order, until the budget is used up.

The published tree repeats what branches share. Siblings of a draft tree are distinct, so here what
a branch shares with an earlier one is not repeated, but is charged to the budget as if it were:
the tree has the same paths as the published one, hence the same acceptance, and fewer rows.

    candidates   P a b c | P d | P a e       budget 6: a b c d, then a (charged), e
    published    P-a-b-c, P-d, P-a-e         here: P-a-b-c, P-d, and e under the first a

Source: Liu et al. 2025, LogitSpec (arXiv 2507.01449), and the draft trees of the repository
smart-lty/LogitSpec.
Cost: O(sum of the squared candidate lengths) per build.
Deviations: `duplicates="drop"` is ours. What `tree_builder=trie` does in addition is to give the
rows of repeated tokens to further branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from primitives.fields import check_words
from primitives.interfaces import TreeBuilder
from primitives.registry import TREE_BUILDERS
from primitives.structures.origin_tree import tree_of_origins
from primitives.types import Candidate, DraftTree, rank_candidates


@TREE_BUILDERS.register("branches")
@dataclass(kw_only=True, frozen=True)
class Branches(TreeBuilder):
    """Candidates side by side, best first.

    Attributes:
        duplicates: What becomes of a branch whose first draft token an earlier branch has: `charge`
            merges what they share and counts it twice, `drop` leaves the later branch out.
    """

    is_monotone = True

    duplicates: Literal["charge", "drop"] = "charge"

    def __post_init__(self) -> None:
        check_words(self)

    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        """Node 0 and up to `budget` nodes of the best branches."""
        index: dict[tuple[int, ...], int] = {(pending_id,): 0}
        parents, origins = [-1], list[Candidate]()
        for candidate in rank_candidates(candidates):
            # An alternative to pending is a draft token itself.
            first = 1 if candidate.token_ids[0] == pending_id else 0
            branch = candidate.token_ids[: first + budget]
            if len(branch) == first or (self.duplicates == "drop" and branch[: first + 1] in index):
                continue
            budget -= len(branch) - first
            for place in range(first, len(branch)):
                if branch[: place + 1] not in index:
                    index[branch[: place + 1]] = len(index)
                    parents.append(index[branch[:place]] if place else -1)
                    origins.append(candidate)
        return tree_of_origins([path[-1] for path in index], parents, origins)
