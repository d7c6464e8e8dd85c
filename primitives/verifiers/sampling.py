"""Lossless sampling: the output follows the target's law exactly, whatever was drafted.

Deterministic drafts (point masses): sample-and-match. Sample y ~ p at the node, move to the child
that carries y if there is one, else emit y. A node is kept with the target's probability of its
path, which no lossless rule can exceed.

Drafts with a distribution q: visit the children in order, keep child x with probability
min(1, p(x)/q(x)); after a rejection p <- norm(max(p - q, 0)), and q loses x and is renormalised;
if all are rejected, sample what is left of p.

Source: Leviathan et al. 2023 (arXiv 2211.17192, algorithm 1 and appendix A.1), Chen et al. 2023
(arXiv 2302.01318, algorithm 2); several children: SpecInfer (arXiv 2305.09781, algorithm 2) with
the without-replacement update of Sequoia (arXiv 2402.12374, section 3.2).
Cost: one softmax per visited node.
Why one rule serves both kinds of q: siblings that share a token are merged in a draft tree, so
i.i.d. draws arrive here as distinct tokens in order of first appearance, whose law is that of
draws without replacement.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.speculative_sampling import walk_ratio_tests
from primitives.structures.tree_walk import walk_exact_matches
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict


@VERIFIERS.register("sampling")
@dataclass(kw_only=True, frozen=True)
class Sampling(Verifier):
    """Sample-and-match, or the ratio test with residual where drafts carry distributions."""

    is_lossless_sampling = True
    samples = True
    valid_proposals = ALL_PROPOSALS

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
        return walk_ratio_tests(tree, logits, random)
