"""Typical acceptance: a drafted token needs a probability that is not small for this uncertainty.

A draft token x is kept if all of its ancestors are and

    p(x) > min(epsilon, delta * exp(-H(p)))        H in nats, p at `temperature`

The argmax passes always, and what follows the path is the argmax.

Source: Medusa (Cai et al. 2024, arXiv 2401.10774, section 2.3.1); defaults and the greedy choice of
the first and the next token as in the released code (FasterDecoding/Medusa, medusa/model/utils.py,
`posterior_threshold` and `posterior_alpha`, fast mode).
Cost: one argmax over [n, v], one softmax per kept parent of a mismatch (two if `temperature` is not
1), O(v) per kept node for the bounds.
Deviations: the paper sets delta to the root of epsilon, the code's defaults do not (it has delta =
epsilon^2). The code adds 1e-5 inside the logarithm of the entropy, which makes flat tails count
less. Of equally long paths the one with more exact matches is kept, then the one with the larger
sum of ln p at temperature 1; Medusa takes the sum alone, at its own temperature. At temperature 0
the code is exact match; here `temperature` belongs to this rule alone, and tokens that tie with the
argmax need the threshold. The code's other mode, which samples one token above the threshold, is
left out. `eos_requires_em` is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from primitives.fields import check_range
from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.relaxed_rules import may_relax, regret_bounds
from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk
from primitives.structures.token_scores import TokenScores, score_tokens
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict


@VERIFIERS.register("typical")
@dataclass(kw_only=True, frozen=True)
class Typical(Verifier):
    """Exact matches, and tokens that are probable enough for the entropy of their place.

    Attributes:
        epsilon: The threshold is never above it, a probability in (0, 1].
        delta: The threshold is never above this times exp(-H); above 0. The probability exp(-H) is
            that of each token of a uniform law with the same entropy.
        temperature: Of the law whose probabilities and entropy are compared; above 0.
        eos_requires_em: Keep no mismatch that is an EOS or stands where the argmax is one.
    """

    valid_proposals = ALL_PROPOSALS

    epsilon: float = 0.3
    delta: float = 0.09
    temperature: float = 1.0
    eos_requires_em: bool = True

    def __post_init__(self) -> None:
        check_range(self, "epsilon", above=0, most=1)
        check_range(self, "delta", "temperature", above=0, below=math.inf)

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
        walk = RelaxedWalk(tree, last_logits, logits)

        def scores(nodes: Int[np.ndarray, "m"]) -> TokenScores:
            if self.temperature == 1:
                return walk.scores(nodes)
            laws = walk.laws(nodes) / self.temperature
            return score_tokens(laws, np.arange(len(nodes)), tree.token_ids[nodes])

        def reasons(mismatches: Mismatches) -> np.ndarray:
            is_kept = may_relax(mismatches, eos_ids, eos_requires_em=self.eos_requires_em)
            judged = scores(mismatches.nodes)
            is_kept &= judged.log_probs > self._log_threshold(judged)
            return np.where(is_kept, "typical", "")

        def most_regret(nodes: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
            judged = scores(nodes)
            distance = judged.log_probs + judged.regrets - self._log_threshold(judged)
            return np.asarray(self.temperature * distance)

        verdict = walk.verdict(reasons)
        return replace(verdict, regret_bounds=regret_bounds(walk, verdict.path, most_regret))

    def _log_threshold(self, scores: TokenScores) -> Float[np.ndarray, "m"]:
        """In nats."""
        return np.minimum(math.log(self.epsilon), math.log(self.delta) - scores.entropies)
