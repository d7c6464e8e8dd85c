"""Fuzzy speculative decoding: a draft may pass where the draft's law resembles the target's.

A draft token is kept if all of its ancestors are, and it is the argmax or

    Div(p, q) <= threshold        p the target's law at the place, q the law it was drafted from

whatever the token. Drafts without `draft_probs` count as q = 1 at the token x. Then the rule is a
threshold on p(x) alone: KL(q||p) = -ln p(x), TV = 1 - p(x),
JS = ln 2 + (p ln p - (1 + p) ln(1 + p)) / 2, while KL(p||q) and `js_code` keep exact matches only.

Source: FSD (Holsman et al. 2025, arXiv 2502.20704); top-k as in the released code
(maxholsman/fsd, fsd_utils.py), whose JS is (KL(m||p) + KL(m||q)) / 2 with m = (p + q) / 2, not the
paper's (KL(p||m) + KL(q||m)) / 2: `js_code` is that, `js` the default.
Cost: one argmax over [n, v], O(v) per mismatch that is reached.
Deviations: decoding is greedy, so an exact match passes whatever the divergence, and behind the
path comes the argmax where FSD samples from p. Laws of greedy drafts do not reach the verifier
here: a draft model has to sample (proposal `iid`) for its q to count, and then the text depends on
the seed; FSD drafts greedily. The threshold of 0.4 is the code's example, of `js_code`, and its
top_k is 50. The code's top-p variants are left out; `eos_requires_em` is ours. A bound of regret
exists for point masses and `top_k` 0 only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from primitives.fields import check_range, check_words
from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.relaxed_rules import (
    best_log_probs,
    may_relax,
    regret_bounds,
)
from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict

Divergence = Literal["js", "js_code", "kl_qp", "kl_pq", "tv"]
BISECTIONS = 60


@VERIFIERS.register("fuzzy")
@dataclass(kw_only=True, frozen=True)
class Fuzzy(Verifier):
    """Exact matches, and tokens whose draft law is near the target's.

    Attributes:
        divergence: `js`, `js_code`, `kl_qp` (KL(q||p), the released code's KL), `kl_pq` or `tv`.
        threshold: Largest divergence, at least 0; nats, or a share with `tv`. At 0 nearly exact
            match.
        top_k: Compare the target's k most probable tokens and the rest as one; at least 1, or 0
            for the whole vocabulary. Of a point mass the rest has all if the token is not among
            them, so that improbable tokens may pass.
        eos_requires_em: Keep no mismatch that is an EOS or stands where the argmax is one.
    """

    valid_proposals = ALL_PROPOSALS

    divergence: Divergence = "js"
    threshold: float = 0.4
    top_k: int = 0
    eos_requires_em: bool = True

    def __post_init__(self) -> None:
        check_words(self)
        check_range(self, "threshold", least=0, below=math.inf)
        check_range(self, "top_k", least=0)

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """The longest path of matches and near laws; alternatives to node 0 are not kept."""
        walk = RelaxedWalk(tree, last_logits, logits)

        def reasons(mismatches: Mismatches) -> np.ndarray:
            is_kept = may_relax(mismatches, eos_ids, eos_requires_em=self.eos_requires_em)
            if is_kept.any():
                nodes = mismatches.nodes
                laws = walk.laws(nodes).double().softmax(dim=-1)
                is_kept &= self._divergences(laws, _draft_laws(tree, nodes, laws)) <= self.threshold
            return np.where(is_kept, "divergence", "")

        verdict = walk.verdict(reasons)
        least = self._least_prob()
        if tree.draft_probs is not None or self.top_k or least == 0:
            return verdict

        def most_regret(nodes: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
            return best_log_probs(walk, nodes) - math.log(least)

        return replace(verdict, regret_bounds=regret_bounds(walk, verdict.path, most_regret))

    def _divergences(
        self, p: Float[Tensor, "m v"], q: Float[Tensor, "m v"]
    ) -> Float[np.ndarray, "m"]:
        if 0 < self.top_k < p.shape[1]:
            ids = p.topk(self.top_k, dim=-1).indices
            p, q = _lump(p, ids), _lump(q, ids)
        middle = (p + q) / 2
        divergences = {
            "js": lambda: (_kl(p, middle) + _kl(q, middle)) / 2,
            "js_code": lambda: (_kl(middle, p) + _kl(middle, q)) / 2,
            "kl_qp": lambda: _kl(q, p),
            "kl_pq": lambda: _kl(p, q),
            "tv": lambda: (p - q).abs().sum(dim=-1) / 2,
        }
        found: np.ndarray = divergences[self.divergence]().cpu().numpy()
        return found

    def _least_prob(self) -> float:
        """The probability from which on a point mass passes; 1 if none does, 0 if all do."""
        if self.divergence == "tv":
            return max(1 - self.threshold, 0.0)
        if self.divergence == "kl_qp":
            return math.exp(-self.threshold)
        if self.divergence != "js":
            return 1.0
        if self.threshold >= math.log(2):
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):  # The divergence falls with the probability.
            mid = (low + high) / 2
            js = math.log(2) + (mid * math.log(mid) - (1 + mid) * math.log1p(mid)) / 2
            low, high = (mid, high) if js > self.threshold else (low, mid)
        return low


def _draft_laws(
    tree: DraftTree, nodes: Int[np.ndarray, "m"], laws: Float[Tensor, "m v"]
) -> Float[Tensor, "m v"]:
    """What each node was drafted from; all the mass at its token for point masses."""
    if tree.draft_probs is not None:
        return tree.draft_probs[torch.from_numpy(nodes)].to(laws)
    certain = torch.zeros_like(laws)
    certain[torch.arange(len(nodes)), torch.from_numpy(tree.token_ids[nodes])] = 1.0
    return certain


def _lump(probs: Float[Tensor, "m v"], ids: Int[Tensor, "m k"]) -> Float[Tensor, "m k_plus_1"]:
    """The probabilities of `ids`, and the rest as one."""
    named = probs.gather(1, ids)
    return torch.cat([named, (1 - named.sum(dim=-1, keepdim=True)).clamp_min(0.0)], dim=1)


def _kl(a: Float[Tensor, "m v"], b: Float[Tensor, "m v"]) -> Float[Tensor, "m"]:
    """KL(a||b) in nats; infinite where b excludes what a has."""
    terms: Tensor = torch.special.xlogy(a, a) - torch.special.xlogy(a, b)
    return terms.sum(dim=-1)
