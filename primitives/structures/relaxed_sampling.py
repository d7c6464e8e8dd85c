"""Speculative sampling down a tree with second chances for rejected tokens.

As in `speculative_sampling`, siblings x are tried in order and kept with probability a0 =
min(1, p(x) / q(x)). If that fails, x is kept with probability boost(x) all the same: together
a0 + (1 - a0) boost(x). If none is kept, what is left of p is sampled.

`corrects` says what is left after a rejection. True: p <- norm(max(p - q, 0)), and q loses x and is
renormalised, before the next sibling; that is lossless while no boost is above 0. False: every
sibling is tested against p itself, and at last max(p - q(rejected), 0) is sampled, with q taken at
the rejected tokens only.

Source: ARC-Decode (NeuraLiying/ARC-Decode, model/utils.py, `evaluate_pf_lts`) for the second chance
and `corrects` false; see `speculative_sampling` for the rest.
Cost: one softmax per visited node.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from primitives.random_source import RandomSource, target_law
from primitives.structures.speculative_sampling import (
    draft_law,
    left_over,
    ratio,
)
from primitives.types import ROOT_REASON, DraftTree, Verdict

RELAXED_REASON = "risk"
Boosts = Callable[[Float[Tensor, "v"], Int[np.ndarray, "m"]], Sequence[float]]
"""Logits and tokens of siblings -> the probability of each one's second chance."""


def sample_relaxed(
    tree: DraftTree,
    logits: Float[Tensor, "n v"],
    random: RandomSource,
    boosts: Boosts,
    *,
    corrects: bool,
) -> Verdict:
    """Samples a path from node 0; kept by the first chance is `em`, by the second `risk`.

    `num_exact` counts to the first second chance: where exact sampling would have gone on to a
    sibling there, it is less than what that had kept.

    Raises:
        ValueError: If a node carries a token that its `draft_probs` exclude.
    """
    children = tree.children()
    path, reasons = [0], [ROOT_REASON]
    while True:
        node = path[-1]
        siblings = children[node]
        chances = boosts(logits[node], tree.token_ids[siblings]) if siblings else ()
        law = target_law(logits[node])
        child, reason, left = _try_siblings(tree, siblings, chances, law, random, corrects)
        if child is None:
            exact = itertools.takewhile(lambda word: word != RELAXED_REASON, reasons)
            return Verdict(
                path=tuple(path),
                next_id=random.categorical(left),
                reasons=tuple(reasons),
                num_exact=len([*exact]),
            )
        path.append(child)
        reasons.append(reason)


def _try_siblings(
    tree: DraftTree,
    siblings: Sequence[int],
    chances: Sequence[float],
    law: Float[Tensor, "v"],
    random: RandomSource,
    corrects: bool,
) -> tuple[int | None, str, Float[Tensor, "v"]]:
    """The kept sibling and why, or None; and what is left of the law."""
    left, spent = law, torch.zeros_like(law)
    rejected: list[int] = []
    for node, chance in zip(siblings, chances, strict=True):
        token_id = int(tree.token_ids[node])
        drawn_from = draft_law(tree, node, rejected if corrects else ())
        if random.bernoulli(ratio(left, drawn_from, token_id)):
            return node, "em", left
        if chance > 0 and random.bernoulli(chance):
            return node, RELAXED_REASON, left
        rejected.append(token_id)
        spent[token_id] = 1.0 if drawn_from is None else drawn_from[token_id]
        if corrects:
            rest = left_over(left, drawn_from, token_id)
            if not rest.sum() > 0:  # Both laws are equal up to rounding: nothing to correct.
                return node, "em", left
            left = rest / rest.sum()
    if corrects:
        return None, "", left
    rest = (law - spent).clamp_min(0.0)
    return None, "", rest if rest.sum() > 0 else law
