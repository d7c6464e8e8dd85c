"""Fixed tree shapes: which ranks of successors are drafted below which.

A node is the tuple of ranks on the way to it: (0, 2) is the third-best successor of the best
successor of the root. A template lists its nodes best first, each behind its parent and behind the
siblings that rank above it, so that every beginning of the list is a template, too.

    root
     +- (0)
     |   +- (0, 0)
     +- (1)                 (0), (0, 0), (1)

Source: the sparse trees of Medusa (Cai et al. 2024, arXiv 2401.10774): greedily, the node with the
largest estimated probability of its path is added.
Cost: O(nodes * ranks) once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

Node = tuple[int, ...]
Template = tuple[Node, ...]

NUM_CHILDREN = {
    (): 8,
    (0,): 8, (1,): 4, (2,): 3, (3,): 2, (4,): 1, (5,): 1, (6,): 1, (7,): 1,
    (0, 0): 8, (0, 1): 3, (0, 2): 2, (0, 3): 1, (0, 4): 1, (0, 5): 1, (0, 6): 1, (0, 7): 1,
    (1, 0): 2, (1, 1): 1, (2, 0): 1, (3, 0): 1, (4, 0): 1, (5, 0): 1,
    (0, 0, 0): 5, (0, 0, 1): 2, (0, 0, 2): 1, (0, 0, 3): 1, (0, 0, 4): 1, (0, 1, 0): 1,
    (0, 2, 0): 1, (1, 0, 0): 1, (2, 0, 0): 1, (3, 0, 0): 1,
    (0, 0, 0, 0): 3, (0, 0, 0, 1): 1, (0, 0, 0, 2): 1, (0, 0, 1, 0): 1, (0, 1, 0, 0): 1,
    (1, 0, 0, 0): 1,
    (0, 0, 0, 0, 0): 2, (0, 0, 0, 1, 0): 1,
}  # fmt: skip
"""The shape of Token Recycling's tree: 80 nodes, of which each parent has the best ranks."""
RANK_PROBS = (0.42, 0.14, 0.08, 0.05, 0.04, 0.03, 0.02, 0.01)
"""Probability that the successor of each rank is right: made up, falling as such shares do."""


def rank_template(template: str | Sequence[Sequence[int]]) -> Template:
    """The template of a configuration: a name, or a list of lists of ranks.

    Raises:
        ValueError: If there is no template of that name, the list is empty, a rank is negative, a
            node is the root or repeats, or its parent or the sibling one rank above it does not
            stand before it.
    """
    if isinstance(template, str):
        if template != "token_recycling":
            raise ValueError(
                f"template must be token_recycling or a list of nodes, got {template!r}"
            )
        return token_recycling_template()
    nodes = tuple(map(tuple, template))
    if not nodes:
        raise ValueError("template must hold at least one node, got []")
    known: set[Node] = {()}
    for node in nodes:
        if node in known or min(node) < 0:
            raise ValueError(f"template must hold distinct lists of ranks ≥ 0, got {list(node)}")
        *path, rank = node
        for needed in ((*path,), *([(*path, rank - 1)] if rank else [])):
            if needed not in known:
                raise ValueError(f"template must hold {list(needed)} before {list(node)}")
        known.add(node)
    return nodes


@cache
def token_recycling_template() -> Template:
    """The 80 nodes of the authors' repository (Luowaterbi/TokenRecycling, version 2.2.2).

    Their order is ours, for budgets below 80: by the probability of the path, under `RANK_PROBS` at
    every node.
    """
    nodes = [(*node, rank) for node, number in NUM_CHILDREN.items() for rank in range(number)]
    return tuple(sorted(nodes, key=_best_first))


def _best_first(node: Node) -> tuple[float, int, Node]:
    return -math.prod(RANK_PROBS[rank] for rank in node), len(node), node
