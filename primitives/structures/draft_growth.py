"""Trees that a draft model grows behind pending from its most probable tokens.

Each round gives the `width` best nodes of the last level `width` children each; in the end the
`total` nodes of largest probability are kept. A node's probability is the product of those along
its path, so that what is kept is closed under parents. `width` 1 is a chain.

Source: EAGLE-2 (Li et al. 2024, arXiv 2406.16858, sections 4.1 and 4.2).
Cost: one forward of the draft model per level, O(m log m) for m nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from primitives.structures.top_tokens import top_tokens


@dataclass(kw_only=True, eq=False)
class DraftNode:
    """A drafted token; the root is pending.

    Attributes:
        token_id: The token.
        parent: None for the root.
        prob: What the draft model gives it behind its parent.
        log_prob: The same of its whole path, as a natural logarithm.
        law: The distribution that it was drawn from, if it was.
        row: Its row in the draft model's cache, once it has been forwarded.
        children: In the order in which they were found or drawn.
    """

    token_id: int
    parent: DraftNode | None = None
    prob: float = 1.0
    log_prob: float = 0.0
    law: Float[Tensor, "v"] | None = None
    row: int = -1
    children: list[DraftNode] = field(default_factory=list)

    @property
    def path(self) -> list[DraftNode]:
        """From the root down to this node."""
        upwards, node = [self], self.parent
        while node is not None:
            upwards.append(node)
            node = node.parent
        return upwards[::-1]

    def leaves(self) -> list[DraftNode]:
        """Leaves at or below this node, depth first, in the order of children."""
        leaves, to_visit = [], [self]
        while to_visit:
            node = to_visit.pop()
            to_visit += reversed(node.children)
            if not node.children:
                leaves.append(node)
        return leaves


Forward = Callable[[Sequence[DraftNode]], Float[Tensor, "m v"]]
"""Forwards nodes whose parents have been; gives the logits behind each and sets their rows."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How far a tree may grow.

    Attributes:
        depth: Levels behind pending, at least 1.
        width: Children per expanded node, at least 1.
        total: Most nodes besides pending, at least 1; None for any number.
        max_leaves: At least 1.
    """

    depth: int
    width: int
    total: int | None
    max_leaves: int


def grow_best(
    root: DraftNode,
    logits: Float[Tensor, "1 v"],
    forward: Forward,
    shape: Shape,
    ends: frozenset[int],
) -> list[DraftNode]:
    """Grows the most probable nodes behind the root.

    Args:
        root: Pending, forwarded.
        logits: Behind it.
        forward: Called once per further level.
        shape: How far.
        ends: Tokens that nothing follows.

    Returns:
        The kept nodes that no kept node follows, most probable first.
    """
    found: list[DraftNode] = []
    level = [root]
    for depth in range(shape.depth):
        children = _best_children(level, logits, shape.width)
        found += children
        open_ends = [node for node in children if node.token_id not in ends]
        level = sorted(open_ends, key=lambda node: -node.log_prob)[: shape.width]
        if not level or depth == shape.depth - 1:
            break
        logits = forward(level)
    # A stable sort: of equally probable nodes the one that was found first, a parent, stays.
    kept = sorted(found, key=lambda node: -node.log_prob)[: shape.total]
    inner = {id(node.parent) for node in kept}
    return [node for node in kept if id(node) not in inner][: shape.max_leaves]


def _best_children(
    parents: Sequence[DraftNode], logits: Float[Tensor, "m v"], width: int
) -> list[DraftNode]:
    """The `width` most probable tokens behind each parent."""
    ids = top_tokens(logits, width)
    log_probs = (logits.gather(1, ids).double() - _log_sum_exp(logits)).cpu().tolist()
    return [
        DraftNode(
            token_id=token_id,
            parent=parent,
            prob=min(math.exp(log_prob), 1.0),
            log_prob=parent.log_prob + min(log_prob, 0.0),
        )
        for parent, row, values in zip(parents, ids.tolist(), log_probs, strict=True)
        for token_id, log_prob in zip(row, values, strict=True)
    ]


def _log_sum_exp(logits: Float[Tensor, "m v"]) -> Float[Tensor, "m 1"]:
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return logits.logsumexp(dim=-1, keepdim=True).double()
