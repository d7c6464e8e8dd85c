"""Multi-round speculative sampling: the children of a node are tested one after the other.

With p the target's law and q the draft's, child x is kept with probability min(1, p(x) / q(x));
after a rejection p becomes norm(max(p - q, 0)), and q loses x and is renormalised. Where a draft
carries no distribution q is a point mass, so that x is kept with p(x), or else taken out of p.

Source: SpecInfer (Miao et al. 2023, arXiv 2305.09781, algorithm 2); for siblings drawn without
replacement Sequoia (Chen et al. 2024, arXiv 2402.12374, section 3.2); for point masses the code of
EAGLE (repository SafeAILab/EAGLE).
Cost: one softmax per visited node, one pass over the vocabulary per visited child.
Deviations: children are tested in the order of their draws, not in a random one. SpecInfer
draws siblings with replacement and goes on with the same q; here equal siblings are one node of the
draft tree, how often it was drawn is not known, and what is left are distinct tokens whose law is
that of draws without replacement, as Sequoia has them. Sampled drafts are therefore judged as by
`sampling`; that one samples and matches where drafts are point masses, which has the same law with
one draw per node.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.speculative_sampling import walk_ratio_tests
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict


@VERIFIERS.register("spec_infer")
@dataclass(kw_only=True, frozen=True)
class SpecInfer(Verifier):
    """Ratio tests with residuals, child after child."""

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
        """Tests children from node 0 down."""
        return walk_ratio_tests(tree, logits, random)
