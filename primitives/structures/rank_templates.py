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

from collections.abc import Sequence
from functools import cache

Node = tuple[int, ...]
Template = tuple[Node, ...]

NODES_PER_DEPTH = (8, 21, 25, 15, 8, 3)
"""Nodes of Token Recycling's tree at depths 1 to 6."""
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
    """80 nodes with the published number at each depth.

    Which 80 stands in the authors' code only. Here, each level has the most probable children of
    the level above it, under `RANK_PROBS` at every node.
    """
    level: list[tuple[float, Node]] = [(1.0, ())]
    nodes: list[tuple[float, Node]] = []
    for num_nodes in NODES_PER_DEPTH:
        children = [
            (prob * of_rank, (*node, rank))
            for prob, node in level
            for rank, of_rank in enumerate(RANK_PROBS)
        ]
        level = sorted(children, key=_best_first)[:num_nodes]
        nodes += level
    return tuple(node for _, node in sorted(nodes, key=_best_first))


def _best_first(weighted: tuple[float, Node]) -> tuple[float, int, Node]:
    prob, node = weighted
    return -prob, len(node), node
