"""Lossless sampling: the output follows the target's law exactly, whatever was drafted.

Deterministic drafts (point masses): sample-and-match. Sample y ~ p at the node, move to the child
that carries y if there is one, else emit y. A node is kept with the target's probability of its
path, which no lossless rule can exceed.

Drafts with a distribution q: visit the children in order, keep child x with probability
min(1, p(x)/q(x)); after a rejection p <- norm(max(p - q, 0)), and q loses x and is renormalised;
if all are rejected, sample what is left of p.

Source: Leviathan et al. 2022 (arXiv 2211.17192, algorithm 1 and appendix A.1), Chen et al. 2023
(arXiv 2302.01318, algorithm 2); several children: SpecInfer (arXiv 2305.09781, algorithm 2) with
the without-replacement update of Sequoia (arXiv 2402.12374, section 3.2).
Cost: one softmax per visited node.
Why one rule serves both kinds of q: siblings that share a token are merged in a draft tree, so
i.i.d. draws arrive here as distinct tokens in order of first appearance, whose law is that of
draws without replacement.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.tree_walk import walk_exact_matches
from primitives.types import ROOT_REASON, DraftTree, Verdict


@VERIFIERS.register("sampling")
@dataclass(kw_only=True, frozen=True)
class Sampling(Verifier):
    """Sample-and-match, or the ratio test with residual where drafts carry distributions."""

    is_lossless_sampling = True
    samples = True
    valid_proposals = frozenset({"point_mass", "iid", "without_replacement"})

    def choose(self, logits: Float[Tensor, "v"], random: RandomSource) -> int:
        """A sample of the target's law."""
        return random.categorical(_softmax(logits))

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """Samples along the tree."""
        if tree.draft_probs is None:
            return walk_exact_matches(tree, lambda node: self.choose(logits[node], random))
        children = tree.children()
        path = [0]
        while True:
            target_probs = _softmax(logits[path[-1]])
            child, residual = _ratio_test(tree, children[path[-1]], target_probs, random)
            if child is None:
                reasons = (ROOT_REASON, *["em"] * (len(path) - 1))
                next_id = random.categorical(residual)
                return Verdict(path=tuple(path), next_id=next_id, reasons=reasons)
            path.append(child)


def _ratio_test(
    tree: DraftTree, children: list[int], target_probs: Float[Tensor, "v"], random: RandomSource
) -> tuple[int | None, Float[Tensor, "v"]]:
    """The kept child, or None and the weights to sample the next token from."""
    assert tree.draft_probs is not None
    residual = target_probs
    rejected: list[int] = []
    for child in children:
        token_id = int(tree.token_ids[child])
        draft_probs = tree.draft_probs[child].to(residual, copy=True)
        draft_probs[rejected] = 0.0
        draft_probs /= draft_probs.sum()
        if not draft_probs[token_id] > 0:
            raise ValueError(
                f"node {child} carries token {token_id}, which its draft_probs exclude"
            )
        if random.bernoulli(float(residual[token_id] / draft_probs[token_id])):
            return child, residual
        left = (residual - draft_probs).clamp_min(0.0)
        if not left.sum() > 0:  # Both laws are equal up to rounding: there is nothing to correct.
            return child, residual
        residual = left / left.sum()
        rejected.append(token_id)
    return None, residual


def _softmax(logits: Float[Tensor, "v"]) -> Float[Tensor, "v"]:
    # float64 on the host: the ratio test and the draw must see the same probabilities, and one
    # row is small.
    return torch.softmax(logits.to("cpu", torch.float64), dim=-1)
