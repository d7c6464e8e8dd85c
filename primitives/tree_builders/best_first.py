"""Best first: the nodes that are most probably accepted, as far as the candidates tell.

A draft node is accepted if all of the path down to it is; with a deterministic draft that happens
with the target's probability of the path. So the sum of the path probabilities of its nodes is the
expected number of accepted tokens of a tree, and the best tree of a given size holds the nodes
with the largest ones:

    P(node) = P(parent) * P(node | parent)

with P(node | parent) from the candidates' `token_probs`, or from the shares of their counts
(`CandidateTrie`). A parent is never less probable than its child, so what is kept is a tree.

Source: OPT-Tree (Wang et al. 2024, arXiv 2406.17276) and its repository Jikai0Wang/OPT-Tree: the
global best nodes, and the stop when one level more adds less than `threshold` to their sum.
Cost: O(total candidate length + m log m) per build, for m nodes of all candidates.
Deviations: the original's stop saves forwards of its draft model and its example takes 0.5; here
candidates exist before the tree is built, so the default of 0 keeps all levels, and what falls
below the threshold is left out, levels behind it included. The original keeps the level at which it
stops, and always the first one; here a step may draft nothing. Shares of counts are ours. Trees
grow with the budget without a threshold only. Of sampled drafts the shallowest nodes are kept, then
those drawn first: what was drawn must not decide what is tested.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from primitives.fields import check_range
from primitives.interfaces import TreeBuilder
from primitives.registry import TREE_BUILDERS
from primitives.structures.candidate_trie import CandidateTrie
from primitives.types import Candidate, DraftTree


@TREE_BUILDERS.register("best_first")
@dataclass(kw_only=True, frozen=True)
class BestFirst(TreeBuilder):
    """The most probable nodes of the prefix tree of all candidates.

    Attributes:
        threshold: Least number of expected accepted tokens that a level must add, at least 0.
    """

    is_monotone = True

    threshold: float = 0.0

    def __post_init__(self) -> None:
        check_range(self, "threshold", least=0)
        if self.threshold > 0:
            object.__setattr__(self, "is_monotone", False)

    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        """Node 0 and the `budget` most probable nodes; of equal ones those of smaller depth."""
        trie = CandidateTrie(pending_id, candidates)
        probs = [1.0] * len(trie) if trie.is_sampled else trie.path_probs()
        order = sorted(range(1, len(trie)), key=lambda i: (-probs[i], trie.depths[i], i))
        if self.threshold > 0 and not trie.is_sampled:
            deepest = self._deepest_level(trie, probs, budget)
            order = [node for node in order if trie.depths[node] <= deepest]
        return trie.to_tree(order[:budget])

    def _deepest_level(self, trie: CandidateTrie, probs: Sequence[float], budget: int) -> int:
        """The last level before one that adds too little."""
        levels: list[list[float]] = [[] for _ in range(max(trie.depths) + 1)]
        for node in range(1, len(trie)):
            levels[trie.depths[node]].append(probs[node])
        best = heapq.nlargest(budget, levels[0])
        for depth, level in enumerate(levels[1:], start=1):
            longer = heapq.nlargest(budget, best + level)
            if sum(longer) - sum(best) < self.threshold:
                return depth - 1
            best = longer
        return len(levels) - 1
