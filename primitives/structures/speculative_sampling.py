"""The ratio test of speculative sampling, and the laws that it compares.

At a node the children are visited in order. With p the target's law and q what the child was drawn
from, child x is kept with probability min(1, p(x) / q(x)); after a rejection p becomes
norm(max(p - q, 0)), and q loses x and is renormalised. If all are rejected, what is left of p is
the law of the next token. A point mass is a q that gives its token everything.

Source: Leviathan et al. 2023 (arXiv 2211.17192, algorithm 1 and appendix A.1), Chen et al. 2023
(arXiv 2302.01318, algorithm 2); several children: SpecInfer (Miao et al. 2023, arXiv 2305.09781,
algorithm 2) with the without-replacement update of Sequoia (Chen et al. 2024, arXiv 2402.12374,
section 3.2).
Cost: one softmax per visited node, one pass over the vocabulary per visited child.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from primitives.random_source import RandomSource, target_law
from primitives.types import ROOT_REASON, DraftTree, Verdict


def draft_law(tree: DraftTree, child: int, rejected: Sequence[int]) -> Float[Tensor, "v"] | None:
    """What a child was drawn from after its siblings had been; None for a point mass.

    Args:
        tree: The draft tree.
        child: A draft node.
        rejected: Tokens of its siblings before it.

    Raises:
        ValueError: If the child carries a token that its `draft_probs` exclude.
    """
    if tree.draft_probs is None:
        return None
    token_id = int(tree.token_ids[child])
    law = tree.draft_probs[child].to("cpu", torch.float64, copy=True)
    law[list(rejected)] = 0.0
    law /= law.sum()
    if not law[token_id] > 0:
        raise ValueError(f"node {child} carries token {token_id}, which its draft_probs exclude")
    return law


def ratio(law: Float[Tensor, "v"], drawn_from: Float[Tensor, "v"] | None, token_id: int) -> float:
    """p / q of a token; may exceed 1."""
    return float(law[token_id] if drawn_from is None else law[token_id] / drawn_from[token_id])


def left_over(
    law: Float[Tensor, "v"], drawn_from: Float[Tensor, "v"] | None, token_id: int
) -> Float[Tensor, "v"]:
    """max(p - q, 0), not normalised."""
    if drawn_from is not None:
        return (law - drawn_from).clamp_min(0.0)
    left = law.clone()
    left[token_id] = 0.0
    return left


def walk_ratio_tests(
    tree: DraftTree, logits: Float[Tensor, "n v"], random: RandomSource
) -> Verdict:
    """Walks down from node 0, one ratio test per visited child.

    Args:
        tree: The draft tree.
        logits: Row i predicts what follows node i.
        random: Decides.

    Raises:
        ValueError: If a node carries a token that its `draft_probs` exclude.
    """
    children = tree.children()
    path = [0]
    while True:
        child, law = _kept_child(tree, children[path[-1]], target_law(logits[path[-1]]), random)
        if child is None:
            reasons = (ROOT_REASON, *["em"] * (len(path) - 1))
            return Verdict(path=tuple(path), next_id=random.categorical(law), reasons=reasons)
        path.append(child)


def _kept_child(
    tree: DraftTree, children: Sequence[int], law: Float[Tensor, "v"], random: RandomSource
) -> tuple[int | None, Float[Tensor, "v"]]:
    """The kept child, or None and the law of the next token."""
    rejected: list[int] = []
    for child in children:
        token_id = int(tree.token_ids[child])
        drawn_from = draft_law(tree, child, rejected)
        if random.bernoulli(ratio(law, drawn_from, token_id)):
            return child, law
        left = left_over(law, drawn_from, token_id)
        if not left.sum() > 0:  # Both laws are equal up to rounding: there is nothing to correct.
            return child, law
        law = left / left.sum()
        rejected.append(token_id)
    return None, law
