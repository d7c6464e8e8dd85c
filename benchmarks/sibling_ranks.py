"""How often the first, second, ... child of a node is accepted: what Sequoia's shape is made from.

A node is tried if it is on the path; its children are then told apart by their order in the draft
tree. The last node of a path that was cut off, by an EOS or the output budget, is not tried:
nobody knows what would have been accepted behind it.

Source: Sequoia (Chen et al. 2024, arXiv 2402.12374), section 3.1: the positional acceptance rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.records import Request
from benchmarks.steps import Steps, StepTree


@dataclass(frozen=True, kw_only=True)
class RankCount:
    """What became of the children of one rank.

    Attributes:
        num_tried: Nodes on a path that had a child of this rank.
        num_accepted: Those where it was the accepted one.
    """

    num_tried: int
    num_accepted: int

    @property
    def rate(self) -> float:
        """Accepted share, in [0, 1]."""
        return self.num_accepted / self.num_tried


def count_ranks(requests: Iterable[Request]) -> list[RankCount]:
    """Per rank from the first on, over all steps of the method whose trees were recorded."""
    tried: list[int] = []
    accepted: list[int] = []
    for request in requests:
        for turn in request.turns if request.arm == "method" else ():
            for tree, is_cut in _trees(turn.steps):
                for num_children, rank in _choices(tree, is_cut=is_cut):
                    missing = num_children - len(tried)
                    tried.extend([0] * missing)
                    accepted.extend([0] * missing)
                    for tried_rank in range(num_children):
                        tried[tried_rank] += 1
                        accepted[tried_rank] += tried_rank == rank
    return [RankCount(num_tried=t, num_accepted=a) for t, a in zip(tried, accepted, strict=True)]


def row_costs(milliseconds: Mapping[int, float], num_rows: int) -> list[float]:
    """Time of a forward of 1 to `num_rows` rows, in forwards of one row.

    Between measured numbers of rows the time is interpolated; where it falls, which only noise
    does, the larger one before counts.

    Args:
        milliseconds: By number of rows; 1 and one of at least `num_rows` among them.
    """
    rows = sorted(milliseconds)
    rising = np.maximum.accumulate([milliseconds[k] for k in rows])
    times = np.interp(np.arange(1, num_rows + 1), rows, rising)
    return [float(time / times[0]) for time in times]


def _trees(steps: Steps | None) -> Iterable[tuple[StepTree, bool]]:
    """Recorded trees, and whether the end of their path was cut off."""
    if steps is None or steps.trees is None:
        return []
    pairs = zip(steps.trees, steps.num_output, strict=True)
    return [(tree, num_output < len(tree.path)) for tree, num_output in pairs]


def _choices(tree: StepTree, *, is_cut: bool) -> Iterable[tuple[int, int | None]]:
    """Per tried node with children their number, and the rank of the accepted one, if any."""
    children: list[list[int]] = [[] for _ in tree.parents]
    for node, parent in enumerate(tree.parents):
        if parent >= 0:
            children[parent].append(node)
    following: Sequence[int | None] = (*tree.path[1:], None)
    for node, kept in zip(tree.path, following, strict=True):
        if children[node] and not (kept is None and is_cut):
            yield len(children[node]), None if kept is None else children[node].index(kept)
