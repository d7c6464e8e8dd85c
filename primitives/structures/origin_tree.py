"""From the nodes that a builder has chosen, each with the candidate it came from, to a draft tree.

Cost: O(n), and one copy of each node's row of `draft_probs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from primitives.types import Candidate, DraftTree

MIXED = "candidates with and without draft_probs cannot share a tree"


def are_sampled(candidates: Sequence[Candidate]) -> bool:
    """Whether candidates carry the distributions that they were drawn from.

    Raises:
        ValueError: If some do and others do not.
    """
    num_sampled = sum(candidate.draft_probs is not None for candidate in candidates)
    if num_sampled not in (0, len(candidates)):
        raise ValueError(MIXED)
    return num_sampled > 0


def tree_of_origins(
    token_ids: Sequence[int], parents: Sequence[int], origins: Sequence[Candidate]
) -> DraftTree:
    """A tree whose nodes carry the source, match length and distribution of their candidates.

    Args:
        token_ids: Of all n nodes, node 0 first.
        parents: Of all n nodes.
        origins: Of the n - 1 draft nodes; node i at depth k is token k of its candidate.

    Raises:
        ValueError: If only some origins carry `draft_probs`, or the nodes are no tree.
    """
    tree = DraftTree.from_nodes(
        token_ids,
        parents,
        sources=["", *(origin.source for origin in origins)],
        match_lens=[0, *(origin.match_len for origin in origins)],
    )
    if not are_sampled(origins):
        return tree
    rows = [
        origin.draft_probs[depth]
        for origin, depth in zip(origins, tree.depths[1:].tolist(), strict=True)
        if origin.draft_probs is not None
    ]
    # The row of node 0 is unused.
    return replace(tree, draft_probs=torch.stack([torch.zeros_like(rows[0]), *rows]))
