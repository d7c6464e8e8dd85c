"""The prefix tree of a step's candidates, with what is known of each node.

Nodes are numbered in the order in which ranked candidates bring them in, so a node's siblings
stand in the order of their best candidates. Node 0 is pending; nodes without a parent are
alternatives to it.

    P(node | parent) = the first estimate in `token_probs` of a candidate through it, or else
                       (1 - estimates of its siblings) * count of the node / count of what shares it

where the count of a node is the sum over the candidates through it, and what shares the rest are
the siblings without an estimate and the candidates that end at the parent.

Source: the prefix trees of SpecInfer (Miao et al. 2023, arXiv 2305.09781, section 3); counts as in
REST (He et al. 2023, arXiv 2311.08252, section 3.3).
Cost: O(total candidate length).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from primitives.structures.origin_tree import are_sampled, tree_of_origins
from primitives.types import Candidate, DraftTree, rank_candidates


class CandidateTrie:
    """Every prefix of every candidate as a node.

    Args:
        pending_id: The token of node 0.
        candidates: In any order.
        max_nodes: Most nodes besides node 0: those of the best candidates. None for all;
            counts and estimates are of all candidates only then.

    Attributes:
        token_ids: Per node.
        parents: Per node, smaller than its own number; -1 for node 0 and its alternatives.
        depths: Per node.
        counts: Per node, the sum of `count` over the candidates through it.
        is_sampled: Whether the candidates carry `draft_probs`.

    Raises:
        ValueError: If some candidates carry `draft_probs` and others do not.
    """

    def __init__(
        self, pending_id: int, candidates: Sequence[Candidate], *, max_nodes: int | None = None
    ) -> None:
        self.token_ids, self.parents, self.depths = [pending_id], [-1], [0]
        self.counts, self._ended = [0], [0]
        self._estimates: list[float | None] = [None]
        self._origins: list[Candidate | None] = [None]
        self._index = {(-1, pending_id): 0}
        self.is_sampled = are_sampled(candidates)
        self._max_nodes = math.inf if max_nodes is None else max_nodes
        for candidate in rank_candidates(candidates):
            self._insert(candidate)

    def __len__(self) -> int:
        return len(self.token_ids)

    def _insert(self, candidate: Candidate) -> None:
        node = -1
        for depth, token_id in enumerate(candidate.token_ids):
            parent, node = node, self._index.get((node, token_id), -1)
            if node < 0:
                if len(self) > self._max_nodes:
                    return
                node = self._append(parent, token_id, depth, candidate)
            self.counts[node] += candidate.count
            if candidate.token_probs and self._estimates[node] is None:
                self._estimates[node] = candidate.token_probs[depth]
        self._ended[node] += candidate.count

    def _append(self, parent: int, token_id: int, depth: int, origin: Candidate) -> int:
        node = len(self.token_ids)
        self._index[parent, token_id] = node
        self.token_ids.append(token_id)
        self.parents.append(parent)
        self.depths.append(depth)
        self.counts.append(0)
        self._ended.append(0)
        self._estimates.append(None)
        self._origins.append(origin)
        return node

    def children(self) -> list[list[int]]:
        """Per node its children, in the order of their best candidates."""
        children: list[list[int]] = [[] for _ in self.token_ids]
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(node)
        return children

    def path_probs(self) -> list[float]:
        """Per node the estimated probability that it is accepted; 1 for node 0.

        No node's exceeds its parent's. Alternatives are told apart by counts.
        """
        shares = self._shares()
        probs = [1.0]
        for node in range(1, len(self)):
            estimate, parent = self._estimates[node], self.parents[node]
            conditional = shares[node] if estimate is None or parent < 0 else estimate
            probs.append(conditional * (1.0 if parent < 0 else probs[parent]))
        return probs

    def _shares(self) -> list[float]:
        """Per node what its parent's children without an estimate leave it."""
        num_nodes = len(self)
        # One more row: what index -1 stands for is the parent of node 0 and its alternatives.
        left, sharing = [1.0] * (num_nodes + 1), [*self._ended, 0]
        for node, (parent, estimate) in enumerate(zip(self.parents, self._estimates, strict=True)):
            if estimate is None or parent < 0:
                sharing[parent] += self.counts[node]
            else:
                left[parent] -= estimate
        return [
            max(left[parent], 0.0) * count / max(sharing[parent], 1)
            for parent, count in zip(self.parents, self.counts, strict=True)
        ]

    def to_tree(self, kept: Iterable[int]) -> DraftTree:
        """Node 0 and the kept nodes, in the order of their numbers.

        Args:
            kept: Nodes other than 0, each with all those above it.
        """
        nodes = sorted(kept)
        numbers = {node: number for number, node in enumerate([0, *nodes])}
        return tree_of_origins(
            [self.token_ids[node] for node in [0, *nodes]],
            [-1, *(numbers.get(self.parents[node], -1) for node in nodes)],
            [origin for node in nodes if (origin := self._origins[node]) is not None],
        )

    def check_integrity(self) -> None:
        """Raises an AssertionError unless the nodes are consistent with each other."""
        through = list(self._ended)
        for node in range(len(self) - 1, 0, -1):
            parent = self.parents[node]
            assert parent < node
            assert self.depths[node] == (self.depths[parent] + 1 if parent >= 0 else 0)
            assert self._index[parent, self.token_ids[node]] == node
            assert through[node] == self.counts[node]
            if parent >= 0:
                through[parent] += through[node]
        probs = self.path_probs()
        for parent, children in enumerate(self.children()):
            assert all(0 <= probs[child] <= probs[parent] for child in children)
