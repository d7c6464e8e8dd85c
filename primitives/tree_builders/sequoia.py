"""Sequoia: ranked candidates placed into the tree that accepts most by rank.

How often the first, second, ... child of a node is the accepted one is measured once. These rates
and what rows and levels cost on a machine fix the best size, depth and shape of a tree
(`structures/best_shape.py`); a step then only fills it: the b-th best child goes to the b-th place.

Source: Sequoia (Chen et al. 2024, arXiv 2402.12374), sections 3.1 and 3.3, and the repository
Infini-AI-Lab/Sequoia, tree_search.py.
Cost: O(total candidate length) per build; once per budget the search of `best_shape`, which takes
milliseconds for 64 nodes.
Deviations: Sequoia draws as many children as a place needs; retrieved candidates may leave places
empty. With `fill` as many of the other nodes get in, by the product of the rates on their path;
without, the places stay empty. Alternatives to pending have no place, they can only fill. The
paper's rates belong to its pairs of models; the default ones are those of scripts/
measure_acceptance.py for sen_greedy on quickstart x 128 tokens (249 of 361 first children, 15 of
84 second ones, 1 of 7 third ones): measure your own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from primitives.interfaces import TreeBuilder
from primitives.registry import TREE_BUILDERS
from primitives.structures.best_shape import Shape, best_shape
from primitives.structures.candidate_trie import CandidateTrie
from primitives.types import Candidate, DraftTree

SAMPLE_RATES = (0.69, 0.18, 0.14)


@TREE_BUILDERS.register("sequoia")
@dataclass(kw_only=True, frozen=True)
class Sequoia(TreeBuilder):
    """The shape of tree that accepts most, filled with ranked candidates.

    Attributes:
        acceptance: Per rank among siblings, best first, the probability in [0, 1] that this child
            is the accepted one; nodes get at most so many children.
        row_costs: Time of a forward of 1, 2, 3, ... rows, in forwards of one row; trees have no
            more rows than entries. None uses the whole budget.
        draft_cost: Time of drafting one level, in forwards of one row, at least 0.
        fill: Whether other candidates get what places the shape's own leave empty.
    """

    acceptance: list[float] = field(default_factory=lambda: list(SAMPLE_RATES))
    row_costs: list[float] | None = None
    draft_cost: float = 0.0
    fill: bool = True

    def __post_init__(self) -> None:
        if not self.acceptance or not all(0 <= prob <= 1 for prob in self.acceptance):
            raise ValueError(
                f"acceptance must hold probabilities in [0, 1], at least one, got {self.acceptance}"
            )
        costs = self.row_costs
        if costs is not None and not (costs and all(0 < cost < float("inf") for cost in costs)):
            raise ValueError(f"row_costs must hold numbers > 0, at least one, got {costs}")
        if not 0 <= self.draft_cost < float("inf"):
            raise ValueError(f"draft_cost must be ≥ 0 and finite, got {self.draft_cost}")

    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        """At most as many nodes as the best shape within the budget has."""
        costs = None if self.row_costs is None else tuple(self.row_costs)
        shape = best_shape(tuple(self.acceptance), budget + 1, costs, self.draft_cost)
        trie = CandidateTrie(pending_id, candidates)
        kept = _placed(trie, shape)
        if self.fill:
            kept |= set(self._others(trie, kept)[: shape.num_nodes - 1 - len(kept)])
        return trie.to_tree(kept)

    def _others(self, trie: CandidateTrie, placed: set[int]) -> list[int]:
        """Nodes that have no place, by the product of the rates on their path.

        A parent comes before its children, so that the first ones complete a tree.
        """
        siblings = Counter({-1: 1})
        probs = [1.0]
        for parent in trie.parents[1:]:
            rank = siblings[parent]
            siblings[parent] += 1
            prob = self.acceptance[rank] if rank < len(self.acceptance) else 0.0
            probs.append(prob * (1.0 if parent < 0 else probs[parent]))
        others = [i for i in range(1, len(trie)) if i not in placed and probs[i] > 0]
        return sorted(others, key=lambda i: (-probs[i], trie.depths[i], i))


def _placed(trie: CandidateTrie, shape: Shape) -> set[int]:
    """The nodes that have a place in the shape, node 0 left out."""
    children = trie.children()
    node_at = {0: 0}
    for place in range(1, shape.num_nodes):
        above = node_at.get(shape.parents[place])
        if above is not None and shape.ranks[place] < len(children[above]):
            node_at[place] = children[above][shape.ranks[place]]
    return set(node_at.values()) - {0}
