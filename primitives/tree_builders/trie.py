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
from primitives.structures.origin_tree import are_sampled, tree_of_origins
from primitives.types import Candidate, DraftTree, rank_candidates


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
        nodes = _Nodes(pending_id)
        ranked = rank_candidates(candidates)
        # Which samples are kept must not depend on what was drawn: counts do.
        select = "rank" if are_sampled(ranked) else self.select
        room = budget
        if select != "rank":
            room = sum(len(candidate.token_ids) for candidate in ranked)
        for candidate in ranked:
            nodes.insert(candidate, room)
        kept = list(range(1, len(nodes.token_ids)))
        if select != "rank":
            kept = nodes.most_frequent(budget)
        if select == "rest":
            kept = nodes.within_weight(kept, budget)
        return nodes.to_tree(kept)


class _Nodes:
    """A trie under construction; nodes are numbered in the order of insertion."""

    def __init__(self, pending_id: int) -> None:
        self.token_ids = [pending_id]
        self.parents = [-1]
        self.depths = [0]
        self.counts = [0]
        self.origins: list[Candidate] = []
        self.index = {(-1, pending_id): 0}

    def insert(self, candidate: Candidate, budget: int) -> None:
        parent = -1
        for position, token_id in enumerate(candidate.token_ids):
            node = self.index.get((parent, token_id))
            if node is None:
                node = len(self.token_ids)
                if node > budget:
                    return
                self.index[parent, token_id] = node
                self.token_ids.append(token_id)
                self.parents.append(parent)
                self.depths.append(position)
                self.counts.append(0)
                self.origins.append(candidate)
            self.counts[node] += candidate.count
            parent = node

    def most_frequent(self, num_nodes: int) -> list[int]:
        """Draft nodes; no child counts more than its parent, so their parents are among them."""
        nodes = range(1, len(self.token_ids))
        return sorted(nodes, key=lambda i: (-self.counts[i], self.depths[i], i))[:num_nodes]

    def within_weight(self, nodes: Sequence[int], budget: int) -> list[int]:
        """Those left when the prefixes of most distinct tokens are dropped, until all fit."""
        weights = {node: len(self._draft_tokens(node)) for node in nodes}
        total = sum(weights.values())
        kept = sorted(nodes, key=lambda i: (weights[i], self.depths[i], i))
        while total > budget:
            total -= weights[kept.pop()]
        return kept

    def _draft_tokens(self, node: int) -> set[int]:
        """Distinct tokens from the first draft token down to the node."""
        token_ids = set()
        while node > 0:
            token_ids.add(self.token_ids[node])
            node = self.parents[node]
        return token_ids

    def to_tree(self, kept: Sequence[int]) -> DraftTree:
        """Node 0 and the kept nodes, in the order of insertion."""
        nodes = [0, *sorted(kept)]
        numbers = {node: number for number, node in enumerate(nodes)}
        return tree_of_origins(
            [self.token_ids[node] for node in nodes],
            [numbers.get(self.parents[node], -1) for node in nodes],
            [self.origins[node - 1] for node in nodes[1:]],
        )
