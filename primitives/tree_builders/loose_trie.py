"""Loose trie: candidates merged by sorting them and aligning each with its neighbour.

In lexicographic order, whatever a candidate shares with any earlier one it shares with the one
right before it. So one pass with a stack finds every common prefix, without a search per token.

Source: SENSE, "Loose Trie by Sorted-LCP Alignment", algorithm 3.
Cost: O(total candidate length * log(number of candidates)) per build.
Deviations: this is the exact alignment. A looser one that merges neighbours in score order would
repeat prefixes, and the siblings of a draft tree are distinct. A node scores as much as the best
candidate through it; what the budget leaves out are the lowest scores, then the deepest nodes,
then those of lower-ranked candidates. Sampled drafts all score alike, in the order in which they
were drawn: what was drawn must not decide what is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from primitives.interfaces import TreeBuilder
from primitives.registry import TREE_BUILDERS
from primitives.structures.origin_tree import are_sampled, tree_of_origins
from primitives.types import Candidate, DraftTree, rank_candidates


@TREE_BUILDERS.register("loose_trie")
@dataclass(kw_only=True, frozen=True)
class LooseTrie(TreeBuilder):
    """Prefix tree of all candidates by sorted alignment, cut to its best nodes."""

    is_monotone = True

    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        """Node 0 and the best `budget` nodes of the prefix tree."""
        ranked = rank_candidates(candidates)
        is_sampled = are_sampled(ranked)

        def worth(node: _Node) -> tuple[float, int, int]:
            return (0.0 if is_sampled else -ranked[node.rank].score, node.depth, node.rank)

        root, *nodes = _align(pending_id, ranked)
        # A parent is worth no less than its child, so what is kept is closed under prefixes.
        kept = sorted(nodes, key=worth)[:budget]
        kept.sort(key=lambda node: (node.rank, node.depth))
        return _to_tree([root, *kept], ranked)


@dataclass(kw_only=True, eq=False)
class _Node:
    """A node under construction; `rank` is that of the best candidate through it."""

    token_id: int
    parent: _Node | None
    depth: int
    rank: int


def _align(pending_id: int, ranked: Sequence[Candidate]) -> list[_Node]:
    """The nodes of the prefix tree, node 0 first."""
    nodes = [_Node(token_id=pending_id, parent=None, depth=0, rank=-1)]
    previous: tuple[int, ...] = ()
    path: list[_Node] = []  # Of the previous candidate.
    for rank, candidate in sorted(enumerate(ranked), key=lambda pair: pair[1].token_ids):
        shared = _common_prefix_len(previous, candidate.token_ids)
        del path[shared:]
        for node in path:
            node.rank = min(node.rank, rank)
        for depth, token_id in enumerate(candidate.token_ids[shared:], start=shared):
            if depth == 0 and token_id == pending_id:
                path.append(nodes[0])
                continue
            parent = path[-1] if path else None
            nodes.append(_Node(token_id=token_id, parent=parent, depth=depth, rank=rank))
            path.append(nodes[-1])
        previous = candidate.token_ids
    return nodes


def _common_prefix_len(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def _to_tree(nodes: list[_Node], ranked: Sequence[Candidate]) -> DraftTree:
    index = {id(node): i for i, node in enumerate(nodes)}
    return tree_of_origins(
        [node.token_id for node in nodes],
        [-1 if node.parent is None else index[id(node.parent)] for node in nodes],
        [ranked[node.rank] for node in nodes[1:]],
    )
