"""Trie: candidates merged by their common prefixes, cut to the budget.

`rank` inserts candidates best first, each token a node unless its prefix is there already, until
the budget is used up; so the best candidate is never cut short for the sake of a worse one.
`frequency` builds the whole trie and keeps the nodes that most occurrences pass through: a node's
count is the sum of `count` over the candidates through it, and nodes are kept by count (larger
first), depth (smaller first), and order of first appearance.
`rest` is the published cut: of the `budget` most frequent prefixes, chosen likewise, it drops those
with the most distinct tokens until the sum of these numbers over all that are kept is within the
budget.

Source: the prefix trees of SpecInfer (Miao et al. 2023, arXiv 2305.09781, section 3) for `rank`;
REST (He et al. 2023, arXiv 2311.08252, section 3.3) for `frequency`, and the authors' library
DraftRetriever for `rest`.
Cost: O(total candidate length) per build; O(m log m) for a whole trie of m nodes.
Deviations: in the original ties are broken by the order of a hash map. Here, of prefixes with
equally many distinct tokens, `rest` drops the deepest first, then the one that appeared last, so
that what is left is a trie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from primitives.fields import check_words
from primitives.interfaces import TreeBuilder
from primitives.registry import TREE_BUILDERS
from primitives.structures.candidate_trie import CandidateTrie
from primitives.structures.origin_tree import are_sampled
from primitives.types import Candidate, DraftTree


@TREE_BUILDERS.register("trie")
@dataclass(kw_only=True, frozen=True)
class Trie(TreeBuilder):
    """Prefix tree of all candidates.

    Attributes:
        select: Which nodes fill the budget: those of the best candidates (`rank`), those that most
            occurrences pass through (`frequency`), or what the published cut of REST leaves of
            these (`rest`). Candidates that were sampled are taken in the order of drawing, whatever
            it says.
    """

    is_monotone = True

    select: Literal["rank", "frequency", "rest"] = "rank"

    def __post_init__(self) -> None:
        check_words(self)
        if self.select == "rest":
            object.__setattr__(self, "is_monotone", False)

    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        """Node 0 and up to `budget` nodes of the prefix tree."""
        # Which samples are kept must not depend on what was drawn: counts do.
        if self.select == "rank" or are_sampled(candidates):
            trie = CandidateTrie(pending_id, candidates, max_nodes=budget)
            return trie.to_tree(range(1, len(trie)))
        trie = CandidateTrie(pending_id, candidates)
        kept = _most_frequent(trie, budget)
        return trie.to_tree(_within_weight(trie, kept, budget) if self.select == "rest" else kept)


def _most_frequent(trie: CandidateTrie, num_nodes: int) -> list[int]:
    """Draft nodes; no child counts more than its parent, so their parents are among them."""
    nodes = range(1, len(trie))
    return sorted(nodes, key=lambda i: (-trie.counts[i], trie.depths[i], i))[:num_nodes]


def _within_weight(trie: CandidateTrie, nodes: Sequence[int], budget: int) -> list[int]:
    """Those left when the prefixes of most distinct tokens are dropped, until all fit."""
    weights = {node: len(_draft_tokens(trie, node)) for node in nodes}
    total = sum(weights.values())
    kept = sorted(nodes, key=lambda i: (weights[i], trie.depths[i], i))
    while total > budget:
        total -= weights[kept.pop()]
    return kept


def _draft_tokens(trie: CandidateTrie, node: int) -> set[int]:
    """Distinct tokens from the first draft token down to the node."""
    token_ids = set()
    while node > 0:
        token_ids.add(trie.token_ids[node])
        node = trie.parents[node]
    return token_ids
