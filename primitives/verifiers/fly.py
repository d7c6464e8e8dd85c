"""FLy: a lone mismatch where the target is unsure is forgiven if the target then goes along.

With m_j = 1 where token j of a path of K drafts is the argmax, a mismatch at j is kept if all of
its ancestors are, the gate is open there, j + W <= K, and

    paper   m_{j+1} .. m_{j+W} = 1
    code    m_{j+1} .. m_{j+W-1} = 1        the window of W holds the mismatch, too

Gates: `norm` is H / ln V >= theta, `top3` is -sum p ln p over the three most probable tokens
>= theta (nats), `none` is always open.

Source: FLy (Li et al. 2026, arXiv 2511.22972) for the idea, W and theta, read at second hand;
`code` and `top3` follow the released code (AMD-AGI/FLy, fly/models/FLy.py), which differs from the
paper and is the default. `rule=paper gate=norm` is the paper.
Cost: one argmax over [n, v], one softmax (`top3`: and one ranking) per kept parent of a mismatch.
Deviations: the released code applies no gate to trees (`gate=none`), and counts K over the longest
path of a tree instead of each; at temperature above 0 it compares with two samples. There is no
bound of regret: any token may be forgiven. `eos_requires_em` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from primitives.fields import check_range, check_words
from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.relaxed_rules import may_relax
from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk
from primitives.structures.token_scores import entropies_of
from primitives.structures.top_tokens import top_logits
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict

WindowRule = Literal["code", "paper"]
Gate = Literal["top3", "norm", "none"]


@VERIFIERS.register("fly")
@dataclass(kw_only=True, frozen=True)
class Fly(Verifier):
    """Exact matches, and mismatches at unsure places that only matches follow.

    Attributes:
        rule: How many matches must follow: `window` - 1 (`code`) or `window` (`paper`).
        gate: Which uncertainty is measured: `top3`, `norm`, or `none` for no gate.
        theta: Least uncertainty of a place, at least 0: nats with `top3`, where at most 1.1 is
            possible, a share of ln V with `norm`.
        window: W of the rule, in tokens; at least 1.
        eos_requires_em: Keep no mismatch that is an EOS or stands where the argmax is one.
    """

    valid_proposals = ALL_PROPOSALS

    rule: WindowRule = "code"
    gate: Gate = "top3"
    theta: float = 0.3
    window: int = 6
    eos_requires_em: bool = True

    def __post_init__(self) -> None:
        check_words(self)
        check_range(self, "theta", least=0)
        check_range(self, "window", least=1)

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """The longest path of matches and forgiven mismatches; not from alternatives to node 0."""

        def reasons(mismatches: Mismatches) -> np.ndarray:
            is_kept = may_relax(mismatches, eos_ids, eos_requires_em=self.eos_requires_em)
            is_kept &= self._is_lone(mismatches)
            if is_kept.any() and self.gate == "norm":
                scores = mismatches.scores
                is_kept &= scores.entropies >= self.theta * scores.max_entropy
            elif is_kept.any() and self.gate == "top3":
                laws = mismatches.walk.laws(mismatches.nodes)
                is_kept &= _top3_entropies(laws) >= self.theta
            return np.where(is_kept, "window", "")

        return RelaxedWalk(tree, last_logits, logits).verdict(reasons)

    def _is_lone(self, mismatches: Mismatches) -> Bool[np.ndarray, "m"]:
        """Whether the path is long enough and only matches follow within the window."""
        first = mismatches.depth + 1
        num_matches = self.window - (self.rule == "code")
        is_followed = mismatches.is_match[:, first : first + num_matches].all(axis=1)
        # Node 0 is no draft: a path of l nodes has l - 1 of them.
        return is_followed & (mismatches.depth + self.window <= mismatches.path_lens - 1)


def _top3_entropies(laws: Float[Tensor, "m v"]) -> Float[np.ndarray, "m"]:
    """What the three most probable tokens contribute to the entropy, in nats."""
    laws = laws.double()
    log_probs = top_logits(laws, 3) - laws.logsumexp(dim=-1, keepdim=True)
    entropies: np.ndarray = entropies_of(log_probs).cpu().numpy()
    return entropies
