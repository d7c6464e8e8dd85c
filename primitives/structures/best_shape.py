"""The shape of tree that accepts most, if the b-th child is accepted with probability p_b.

A tree's expected output tokens are the sum over its nodes of the product of the p_b on the path
down to them (1 for node 0, whose successor is always output). Over trees of exactly m nodes, of at
most l levels below node 0, and with b children of node 0,

    T[m][l][0] = 1 for m = 1
    T[m][l][b] = max over y of T[y][l][b - 1] + p_b * max over c of T[m - y][l - 1][c]

Of all sizes and depths, the one with the least cost per token is taken:

    (row_cost(m) + l * draft_cost) / T[m][l], costs in forwards of one row

Source: Sequoia (Chen et al. 2024, arXiv 2402.12374), sections 3.1 (optimal trees) and 3.3 (the
hardware-aware choice), and the repository Infini-AI-Lab/Sequoia, tree_search.py.
Cost: O(levels * len(acceptance) * m^2), vectorised over m^2; levels end where more do not help.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A tree without tokens; nodes come behind their parents, siblings in the order of their rank.

    Attributes:
        parents: Per node, -1 for node 0.
        ranks: Per node its place among its siblings, from 0.
        expected_tokens: Expected output tokens of a step, at least 1.
        depth: Levels below node 0 that were paid for.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    expected_tokens: float
    depth: int

    @property
    def num_nodes(self) -> int:
        """Nodes including node 0."""
        return len(self.parents)


@functools.lru_cache(maxsize=128)
def best_shape(
    acceptance: tuple[float, ...],
    max_nodes: int,
    row_costs: tuple[float, ...] | None = None,
    draft_cost: float = 0.0,
) -> Shape:
    """The shape with the least cost per expected token.

    Args:
        acceptance: p_b by rank, in [0, 1], at least one.
        max_nodes: Most nodes, node 0 included, at least 1.
        row_costs: Entry k is the time of a forward of k + 1 rows, in forwards of one row; larger
            trees than it has entries for are not considered. None: rows cost nothing.
        draft_cost: Time of drafting one level, in forwards of one row.

    Returns:
        Of equally good ones the shallowest, then the smallest.
    """
    if row_costs is not None:
        max_nodes = min(max_nodes, len(row_costs))
    costs = np.ones(max_nodes + 1) if row_costs is None else np.array([0.0, *row_costs])
    levels = _solve(acceptance, max_nodes)
    best, choice = np.inf, (1, 0)
    for depth, level in enumerate(levels):
        is_tree = level.best > 0
        per_token = np.full(max_nodes + 1, np.inf)
        per_token[is_tree] = (costs[: max_nodes + 1] + depth * draft_cost)[is_tree]
        per_token[is_tree] /= level.best[is_tree]
        size = int(per_token.argmin())
        if per_token[size] < best:
            best, choice = per_token[size], (size, depth)
    return _shape(levels, *choice)


@dataclass(frozen=True, kw_only=True)
class _Level:
    """The best trees of at most so many levels below node 0.

    Attributes:
        best: Per number of nodes the expected tokens of the best tree; 0 where there is no tree.
        num_children: Per number of nodes, of how many children node 0 has in it.
        splits: Per number of children b and number of nodes, the nodes outside the b-th subtree.
    """

    best: Float[np.ndarray, "m"]
    num_children: Int[np.ndarray, "m"]
    splits: Int[np.ndarray, "b m"]


def _solve(acceptance: tuple[float, ...], max_nodes: int) -> list[_Level]:
    """By number of levels from 0 on, until another one changes nothing."""
    only_node_0 = np.zeros(max_nodes + 1)
    only_node_0[1] = 1.0
    zeros = np.zeros(max_nodes + 1, dtype=np.int64)
    levels = [_Level(best=only_node_0, num_children=zeros, splits=zeros[None])]
    while len(levels) < max_nodes:
        level = _next_level(acceptance, only_node_0, levels[-1].best)
        if np.array_equal(level.best, levels[-1].best):
            break
        levels.append(level)
    return levels


def _next_level(
    acceptance: tuple[float, ...],
    only_node_0: Float[np.ndarray, "m"],
    below: Float[np.ndarray, "m"],
) -> _Level:
    sizes = np.arange(len(below))
    rest = sizes[:, None] - sizes  # [m, y]: nodes of the b-th subtree, if y are outside it.
    tables, splits = [only_node_0], [np.zeros(len(below), dtype=np.int64)]
    for prob in acceptance:
        is_tree = (rest >= 1) & (tables[-1] > 0) & (below[rest] > 0)
        values = np.where(is_tree, tables[-1] + prob * below[rest], 0.0)
        # The last of equal splits: it has the smallest subtree for the worst child.
        splits.append(len(sizes) - 1 - values[:, ::-1].argmax(axis=1))
        tables.append(values.max(axis=1))
    table = np.stack(tables)
    return _Level(
        best=table.max(axis=0), num_children=table.argmax(axis=0), splits=np.stack(splits)
    )


def _shape(levels: list[_Level], num_nodes: int, depth: int) -> Shape:
    parents, ranks = [-1], [0]
    waiting = [(0, num_nodes, depth)]  # Nodes whose children are still to be put down.
    while waiting:
        node, size, left = waiting.pop()
        sizes = []
        for child in range(int(levels[left].num_children[size]), 0, -1):
            outside = int(levels[left].splits[child, size])
            sizes.append(size - outside)
            size = outside
        for rank, child_size in enumerate(reversed(sizes)):
            waiting.append((len(parents), child_size, left - 1))
            parents.append(node)
            ranks.append(rank)
    expected_tokens = float(levels[depth].best[num_nodes])
    return Shape(
        parents=tuple(parents), ranks=tuple(ranks), expected_tokens=expected_tokens, depth=depth
    )
