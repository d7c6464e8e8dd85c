"""Conditional verification: a copied token needs a probability that falls with the entropy.

A draft token y is kept if all of its ancestors are and

    p(y) >= min(-alpha * H(p) + beta, max p)        H in nats

The second argument lets the argmax pass always. So `alpha=0, beta=1` is exact match, and the
threshold is lower where the target is less certain.

Source: AASD (Wang et al. 2025, arXiv 2505.13204), conditional verification.
Cost: one argmax over [n, v], one softmax per kept parent of a mismatch.
Deviations: the published alpha and beta are known to us at second hand only (0.1 each, which keeps
any token where H exceeds 1 nat); the default beta is larger. Tokens that tie with the argmax pass
by the first argument only. Decoding is greedy: what follows the path is the argmax, never a sample.
`strict_siblings` and the rules for EOS are ours. There is no bound of
regret, for the threshold may be negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from primitives.fields import check_range
from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.relaxed_rules import may_relax
from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk
from primitives.types import ALL_PROPOSALS, SIBLING_SOURCE, DraftTree, Verdict


@VERIFIERS.register("conditional")
@dataclass(kw_only=True, frozen=True)
class Conditional(Verifier):
    """Exact matches, and tokens above an entropy-dependent probability.

    Attributes:
        alpha: How fast the threshold falls, in probability per nat of entropy; at least 0.
        beta: The threshold at entropy 0, a probability; at least 0. From 1 on, without `alpha`,
            exact match.
        strict_siblings: Keep tokens that were copied from nowhere (see `SIBLING_SOURCE`) as exact
            matches only.
        eos_requires_em: Keep no mismatch that is an EOS or stands where the argmax is one.
    """

    valid_proposals = ALL_PROPOSALS

    alpha: float = 0.1
    beta: float = 0.5
    strict_siblings: bool = True
    eos_requires_em: bool = True

    def __post_init__(self) -> None:
        check_range(self, "alpha", "beta", least=0, below=math.inf)

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """The longest path above the threshold; alternatives to node 0 are not kept."""
        is_sibling = np.array([source == SIBLING_SOURCE for source in tree.sources])

        def reasons(mismatches: Mismatches) -> np.ndarray:
            scores = mismatches.scores
            threshold = self.beta - self.alpha * scores.entropies
            is_kept = may_relax(mismatches, eos_ids, eos_requires_em=self.eos_requires_em)
            is_kept &= np.exp(scores.log_probs) >= threshold
            if self.strict_siblings:
                is_kept &= ~is_sibling[mismatches.nodes]
            return np.where(is_kept, "threshold", "")

        return RelaxedWalk(tree, last_logits, logits).verdict(reasons)
