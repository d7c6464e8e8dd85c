"""Trees that a draft model grows behind pending by sampling.

Who has how many children is fixed before anything is drawn, level by level. Neither which node is
expanded nor which one is left out may depend on what was drawn: the verifier's test of a sibling
holds for tokens that are there whatever they are.

    width 2, total 5, at most 3 leaves       pending -+- 1 -+- 3      leaves 3, 4, 5
                                                     |     +- 4
                                                     +- 2 --- 5

Source: siblings of SpecInfer (Miao et al. 2023, arXiv 2305.09781, section 3) and Sequoia (Chen et
al. 2024, arXiv 2402.12374, section 3.2).
Cost: one forward of the draft model per level, one pass over the vocabulary per draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from primitives.random_source import RandomSource
from primitives.structures.draft_growth import DraftNode, Forward, Shape


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Draws the children of nodes.

    Attributes:
        random: Where from.
        temperature: Of the draft model's law, above 0.
        with_replacement: Whether siblings are independent; equal ones become one node.
    """

    random: RandomSource
    temperature: float
    with_replacement: bool

    def law(self, logits: Float[Tensor, "v"]) -> Float[Tensor, "v"]:
        """What is drawn from, on the host, where the verifier's test will read it."""
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        return torch.softmax((logits - logits.max()) / self.temperature, dim=-1).cpu()

    def draw(self, parent: DraftNode, law: Float[Tensor, "v"], num: int) -> list[DraftNode | None]:
        """Adds children; None for draws that no token is left for."""
        drawn: list[DraftNode | None] = []
        left = law.clone()
        for _ in range(num):
            if not left.sum() > 0:
                drawn.append(None)
                continue
            token_id = self.random.categorical(left)
            if not self.with_replacement:
                left[token_id] = 0.0
            same = [child for child in parent.children if child.token_id == token_id]
            node = same[0] if same else DraftNode(token_id=token_id, parent=parent, law=law)
            parent.children += [] if same else [node]
            drawn.append(node)
        return drawn


def grow_samples(
    root: DraftNode,
    logits: Float[Tensor, "1 v"],
    forward: Forward,
    shape: Shape,
    ends: frozenset[int],
    sampler: Sampler,
) -> list[DraftNode]:
    """Grows samples behind the root; the arguments of `grow_best`, and how to draw.

    Returns:
        The leaves, depth first, so that siblings appear in the order of their draws.
    """
    plan = plan_levels(shape)
    level: list[DraftNode | None] = [root]
    laws = {id(root): sampler.law(logits[0])}
    for depth, counts in enumerate(plan):
        slots: list[DraftNode | None] = []
        for node, num in zip(level, counts, strict=True):
            if node is None or node.token_id in ends or num == 0:
                slots += [None] * num
            else:
                slots += sampler.draw(node, laws[id(node)], num)
        level = slots
        if depth + 1 < len(plan):
            laws = _laws(level, plan[depth + 1], forward, ends, sampler)
    return root.leaves()


def plan_levels(shape: Shape) -> list[list[int]]:
    """Per level above the last, how many children each of its nodes is to have.

    Nodes are planned from left to right for as long as `total` and `max_leaves` allow; a first
    child makes no further leaf.
    """
    plan: list[list[int]] = []
    num_nodes = num_level = 1
    num_leaves, most = 1, math.inf if shape.total is None else shape.total + 1
    for _ in range(shape.depth):
        counts = []
        for _ in range(num_level):
            num = int(min(shape.width, most - num_nodes, shape.max_leaves - num_leaves + 1))
            counts.append(num)
            num_nodes += num
            num_leaves += max(num - 1, 0)
        num_level = sum(counts)
        if num_level == 0:
            break
        plan.append(counts)
    return plan


def _laws(
    level: Sequence[DraftNode | None],
    counts: Sequence[int],
    forward: Forward,
    ends: frozenset[int],
    sampler: Sampler,
) -> dict[int, Float[Tensor, "v"]]:
    """By node, the laws of what follows those that are to have children."""
    nodes = {
        id(node): node
        for node, num in zip(level, counts, strict=True)
        if node is not None and num and node.token_id not in ends
    }
    if not nodes:
        return {}
    logits = forward(list(nodes.values()))
    return {key: sampler.law(row) for key, row in zip(nodes, logits, strict=True)}
