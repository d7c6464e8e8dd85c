"""ARC-Decode: a token may pass where it would hardly move the target's next law.

How far the next law moves (Jensen-Shannon, nats) if x takes the place of t = argmax p is estimated
from above by the cheaper of two surrogates, E being input embeddings and w 1/std per dimension:

    U = min(c_e * ||w (E[x] - E[t])||^2,  c_l * (ln p(t) - ln p(x))^2)
    gamma = tau_delta * (1 - theta)

    sampling   x, drafted with probability q(x), is kept with probability a0 + boost (1 - a0) s,
               a0 = min(1, p(x) / q(x)),  s = [p(x) >= min_prob] max(0, 1 - U / gamma);
               else the next sibling is tried, and at last norm(max(p - q of the rejected, 0)) is
               sampled
    greedy     x is kept if it is t, or if p(x) >= min_prob and U <= gamma

Source: ARC-Decode, acceptance with risk control (Li et al., ICML 2026 poster 66788; released code
NeuraLiying/ARC-Decode, model/utils.py, `evaluate_pf_lts`).
Cost: greedy: one argmax over [n, v], one softmax and two embeddings [d] per mismatch that is
reached; sampling: one softmax per visited node.
Deviations: `greedy` is ours; the released code is exact match there. The three constants are those
of SmolLM2-135M on quickstart (scripts/calibrate_arc.py measures others); they depend on the model,
and are such that about 95 % of runners-up have U <= gamma, so that `min_prob` decides most.
`siblings=published` tests all siblings against the same p, which with several siblings, or with
`draft_probs`, is not the target's law even at boost 0; `siblings=exact` corrects p after each of
them, and is lossless at boost 0. Instead of one draw there are two, a0 and boost s, which is the
same law and tells both apart. The released code divides by the draft model's probability although
its trees hold the most probable tokens; here q is what a token was drawn with, and 1 for a draft
that was not drawn. Its pruning before verification (path probability) is left out.
`eos_requires_em` is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from primitives.fields import check_range, check_words
from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.relaxed_rules import best_log_probs, may_relax, regret_bounds
from primitives.structures.relaxed_sampling import sample_relaxed
from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk
from primitives.structures.scaled_embeddings import ScaledEmbeddings
from primitives.structures.token_scores import TokenScores, score_tokens
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict

Rule = Literal["greedy", "sampling"]
Siblings = Literal["published", "exact"]


@VERIFIERS.register("arc")
@dataclass(kw_only=True, frozen=True)
class Arc(Verifier):
    """Exact matches (or the ratio test), and tokens whose risk is small.

    Attributes:
        rule: `greedy`, or `sampling`, which draws (needs temperature > 0).
        c_e: Nats per unit of the embedding surrogate, at least 0.
        c_l: Nats per unit of the logit surrogate, at least 0.
        tau_delta: Scale of the largest risk, in nats; above 0.
        theta: How much of it is held back, in [0, 1).
        min_prob: Least probability of a relaxed token, in [0, 1].
        boost: With `sampling`, the share of its rejections that a riskless token is spared, in
            [0, 1]; at 0 nothing is relaxed.
        siblings: With `sampling`, whether the law is corrected after all siblings (`published`) or
            after each (`exact`).
        eos_requires_em: Relax no token that is an EOS or stands where the argmax is one.
    """

    needs = frozenset({"embeddings"})
    valid_proposals = ALL_PROPOSALS

    rule: Rule = "greedy"
    c_e: float = 0.00123
    c_l: float = 32.1
    tau_delta: float = 2.68
    theta: float = 0.3
    min_prob: float = 0.05
    boost: float = 0.25
    siblings: Siblings = "published"
    eos_requires_em: bool = True
    _embeddings: ScaledEmbeddings | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_words(self)
        check_range(self, "c_e", "c_l", least=0, below=math.inf)
        check_range(self, "tau_delta", above=0, below=math.inf)
        check_range(self, "theta", least=0, below=1)
        check_range(self, "min_prob", "boost", least=0, most=1)
        if self.rule == "sampling":
            object.__setattr__(self, "samples", True)

    def attach(self, **resources: Any) -> None:
        """Hands over the target's input `embeddings` [v d].

        Raises:
            TypeError: If anything else is handed over.
            ValueError: If they are no table.
        """
        if set(resources) != {"embeddings"}:
            return super().attach(**resources)
        embeddings = ScaledEmbeddings.of(resources["embeddings"])
        object.__setattr__(self, "_embeddings", embeddings)

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """The longest path of little risk, or a sampled one; not from alternatives to node 0."""
        if self.rule == "sampling":
            return sample_relaxed(
                tree,
                logits,
                random,
                lambda law, token_ids: self._boosts(law, token_ids, eos_ids),
                corrects=self.siblings == "exact",
            )
        walk = RelaxedWalk(tree, last_logits, logits)

        def reasons(mismatches: Mismatches) -> np.ndarray:
            is_kept = may_relax(mismatches, eos_ids, eos_requires_em=self.eos_requires_em)
            is_kept &= np.exp(mismatches.scores.log_probs) >= self.min_prob
            if is_kept.any():
                is_kept &= self._risks(mismatches.scores) <= 1
            return np.where(is_kept, "risk", "")

        def most_regret(nodes: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
            return best_log_probs(walk, nodes) - math.log(self.min_prob)

        verdict = walk.verdict(reasons)
        if self.min_prob == 0:
            return verdict
        return replace(verdict, regret_bounds=regret_bounds(walk, verdict.path, most_regret))

    def _risks(self, scores: TokenScores) -> Float[np.ndarray, "m"]:
        """U / gamma of tokens that the law does not exclude."""
        if self._embeddings is None:
            raise ValueError("verifier 'arc' needs the target's embeddings: attach them first")
        distances = self._embeddings.squared_distances(scores.token_ids, scores.argmax_ids)
        risks = np.minimum(self.c_e * distances, self.c_l * scores.regrets**2)
        return np.asarray(risks / (self.tau_delta * (1 - self.theta)))

    def _boosts(
        self, law: Float[Tensor, "v"], token_ids: Int[np.ndarray, "m"], eos_ids: frozenset[int]
    ) -> list[float]:
        """The probability of each token's second chance."""
        scores = score_tokens(law[None], np.zeros_like(token_ids), token_ids)
        is_open = scores.is_possible & (np.exp(scores.log_probs) >= self.min_prob)
        if self.eos_requires_em:
            is_open &= ~scores.involves(eos_ids)
        boosts = np.zeros(len(token_ids))
        if self.boost and is_open.any():
            boosts = np.where(is_open, self.boost * np.maximum(1 - self._risks(scores), 0.0), 0.0)
        return [float(boost) for boost in boosts]
