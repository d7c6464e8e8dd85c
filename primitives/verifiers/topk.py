"""Top-k acceptance: a drafted token may be any of the k most probable ones.

A draft token x is kept if all of its ancestors are and

    rank of x under p <= k  and  p(x) >= min_prob

Source: Stern et al. 2018 (arXiv 1811.03115, section 5.1, top-k selection); the floor is the usual
guard of later rules, such as ARC decoding.
Cost: one argmax over [n, v], one softmax and one ranking per kept parent of a mismatch, O(v) per
kept node for the bounds.
Deviations: the argmax passes whatever the floor. Equal logits rank by the smaller id. The floor and
`eos_requires_em` are ours.
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
from primitives.structures.relaxed_rules import best_log_probs, may_relax, regret_bounds
from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict


@VERIFIERS.register("topk")
@dataclass(kw_only=True, frozen=True)
class TopK(Verifier):
    """Exact matches, and tokens among the most probable ones.

    Attributes:
        k: Tokens that may stand in for the argmax, itself included; at least 1, which is exact
            match.
        min_prob: Least probability of a token other than the argmax, in [0, 1].
        eos_requires_em: Keep no mismatch that is an EOS or stands where the argmax is one.
    """

    valid_proposals = ALL_PROPOSALS

    k: int = 3
    min_prob: float = 0.0
    eos_requires_em: bool = True

    def __post_init__(self) -> None:
        check_range(self, "k", least=1)
        check_range(self, "min_prob", least=0, most=1)

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """The longest path of probable tokens; alternatives to node 0 are not kept."""
        walk = RelaxedWalk(tree, last_logits, logits)
        least = math.log(self.min_prob) if self.min_prob else -math.inf

        def reasons(mismatches: Mismatches) -> np.ndarray:
            is_kept = may_relax(mismatches, eos_ids, eos_requires_em=self.eos_requires_em)
            is_kept &= mismatches.scores.log_probs >= least
            if is_kept.any():
                is_kept &= mismatches.is_top(self.k)
            return np.where(is_kept, "topk", "")

        def most_regret(nodes: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
            distances = best_log_probs(walk, nodes) - least
            return np.asarray(np.minimum(walk.gaps(nodes, self.k), distances))

        verdict = walk.verdict(reasons)
        return replace(verdict, regret_bounds=regret_bounds(walk, verdict.path, most_regret))
