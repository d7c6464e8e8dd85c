"""Margin-aware verification: the runner-up may pass where the target hardly prefers the argmax.

A draft token is kept if all of its ancestors are, and it is the argmax or the second most probable
token with one of

    logit_ratio   z2 / z1 > theta, with z1 > 0      z raw logits, the published form
    margin        z1 - z2 < max_margin              nats
    prob_ratio    p2 / p1 > min_ratio

Source: MARS (Song et al. 2026, arXiv 2601.15498), known to us at second hand: the rule, theta and
that it serves chains and trees.
Cost: one argmax over [n, v], one softmax and one ranking per kept parent of a mismatch, O(v) per
kept node for the bounds.
Deviations: the ratio of logits changes when a constant is added to all of them, which leaves the
law as it is, and means nothing if z1 is not positive; then only the argmax passes. `margin` and
`prob_ratio` are ours, do not depend on the constant, and are the same rule at
max_margin = -ln min_ratio. `eos_requires_em` is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from primitives.fields import check_range, check_words
from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.relaxed_rules import may_relax, regret_bounds
from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict

Form = Literal["logit_ratio", "margin", "prob_ratio"]


@VERIFIERS.register("mars")
@dataclass(kw_only=True, frozen=True)
class Mars(Verifier):
    """Exact matches, and runners-up with a small margin.

    Attributes:
        form: What is compared: `logit_ratio`, `margin` or `prob_ratio`.
        theta: The ratio z2 / z1 must be above it, in [0, 1]; at 1 exact match.
        max_margin: The margin z1 - z2 must be below it, in nats; at least 0, which is exact match.
        min_ratio: The ratio p2 / p1 must be above it, in (0, 1]; at 1 exact match.
        eos_requires_em: Keep no mismatch that is an EOS or stands where the argmax is one.
    """

    valid_proposals = ALL_PROPOSALS

    form: Form = "logit_ratio"
    theta: float = 0.9
    max_margin: float = 1.0
    min_ratio: float = 0.4
    eos_requires_em: bool = True

    def __post_init__(self) -> None:
        check_words(self)
        check_range(self, "theta", least=0, most=1)
        check_range(self, "max_margin", least=0, below=math.inf)
        check_range(self, "min_ratio", above=0, most=1)

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """The longest path of argmaxes and near runners-up; alternatives to node 0 are not kept."""
        walk = RelaxedWalk(tree, last_logits, logits)

        def margins(nodes: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
            """The runner-up passes below this, in nats."""
            if self.form == "margin":
                return np.full(len(nodes), self.max_margin)
            if self.form == "prob_ratio":
                return np.full(len(nodes), -math.log(self.min_ratio))
            best = walk.laws(nodes).amax(dim=-1).double().cpu().numpy()
            return np.asarray((1 - self.theta) * np.maximum(best, 0.0))

        def reasons(mismatches: Mismatches) -> np.ndarray:
            is_kept = may_relax(mismatches, eos_ids, eos_requires_em=self.eos_requires_em)
            is_kept &= mismatches.scores.regrets < margins(mismatches.nodes)
            if is_kept.any():
                is_kept &= mismatches.is_top(2)
            return np.where(is_kept, "margin", "")

        def most_regret(nodes: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
            gaps = walk.gaps(nodes, 2)
            return np.where(gaps < margins(nodes), gaps, 0.0)

        verdict = walk.verdict(reasons)
        return replace(verdict, regret_bounds=regret_bounds(walk, verdict.path, most_regret))
