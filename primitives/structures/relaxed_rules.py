"""What rules of relaxed verifiers share beside the walk: which mismatches, and bounds of regret.

Cost: bounds rank one row [v] per kept node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk

Regrets = Callable[[Int[np.ndarray, "m"]], Float[np.ndarray, "m"]]
"""Per node the most regret, in nats, that a rule lets pass there; finite."""


def may_relax(
    mismatches: Mismatches, eos_ids: frozenset[int], *, eos_requires_em: bool
) -> Bool[np.ndarray, "m"]:
    """Mismatches that a rule is asked about at all.

    Alternatives to node 0 are not: only a verifier that admits them keeps them.

    Args:
        mismatches: One depth of the walk.
        eos_ids: Ids that end a generation.
        eos_requires_em: Leave out tokens that are an EOS or stand where the argmax is one.
    """
    is_asked = np.full(len(mismatches.nodes), mismatches.depth > 0)
    return is_asked & ~mismatches.scores.involves(eos_ids) if eos_requires_em else is_asked


def best_log_probs(walk: RelaxedWalk, nodes: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """log p of the argmax, in nats, under the law that each node is judged by."""
    scores = walk.scores(nodes)
    best: np.ndarray = scores.log_probs + scores.regrets
    return best


def regret_bounds(walk: RelaxedWalk, path: Sequence[int], most: Regrets) -> tuple[float, ...]:
    """Per node of a path the most regret that a rule lets pass; 0 where only the argmax passes.

    That is where the second most probable token has more regret than `most`, and at node 0.
    """
    nodes = np.array(path)
    bounds = np.zeros(len(nodes))
    judged = np.flatnonzero(nodes != 0)
    if len(judged):
        limits = most(nodes[judged])
        bounds[judged] = np.where(walk.gaps(nodes[judged], 2) <= limits, limits, 0.0)
    return tuple(bounds.tolist())
