"""Whether sampled tokens follow the target's law: their surprise against its entropy.

At each position the target's law p is computed again by feeding it the answer. If y was drawn from
p, then -log p(y) is H(p) on average, whatever came before: the excess -log p(y) - H(p) has mean 0
and variance Var(-log p), and its sum over all tokens of a run, divided by the root of the summed
variances, is a standard normal number z (a martingale: no independence of tokens is needed). A
sampler that prefers likely tokens, or accepts unlikely drafts too often, moves z. Every token
counts, so that this needs no repeats.

Source: the typical information content of a sequence (Cover and Thomas 2006, chapter 3); central
limit theorem for martingales (Hall and Heyde 1980, theorem 3.2).
Cost: one forward of `WIDTH` rows per `WIDTH` tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats

from benchmarks.teacher_forcing import logits_of_outputs
from methods.sampling import SamplingLaw
from methods.targets.base import TargetModel

WIDTH = 32
MIN_VARIANCE = 10.0
"""In nats squared; below, the law was so sharp that there was hardly anything to choose."""


@dataclass(frozen=True, kw_only=True)
class Surprise:
    """Of some tokens together.

    Attributes:
        num_tokens: How many.
        excess: Sum of -log p(y) - H(p), in nats.
        variance: Sum of Var(-log p), in nats squared.
        num_outside: Tokens that the law excludes (top-k, top-p); they are in neither sum.
    """

    num_tokens: int = 0
    excess: float = 0.0
    variance: float = 0.0
    num_outside: int = 0

    def __add__(self, other: Surprise) -> Surprise:
        return Surprise(**{name: getattr(self, name) + getattr(other, name) for name in vars(self)})

    @property
    def z(self) -> float | None:
        """Excess in standard deviations; None if there was too little to choose."""
        return self.excess / math.sqrt(self.variance) if self.variance >= MIN_VARIANCE else None

    @property
    def p_value(self) -> float | None:
        """How often a right sampler is as far from 0."""
        return None if self.z is None else float(2.0 * stats.norm.sf(abs(self.z)))

    @property
    def resolution(self) -> float | None:
        """Nats per token that would be found at p < 0.01."""
        if self.z is None:
            return None
        return float(stats.norm.isf(0.005)) * math.sqrt(self.variance) / self.num_tokens

    def to_json(self) -> dict[str, Any]:
        """All fields, z, p-value and resolution."""
        derived = {"z": self.z, "p_value": self.p_value, "resolution": self.resolution}
        return dict(vars(self)) | derived


def surprise(
    target: TargetModel,
    law: SamplingLaw,
    answers: Iterable[tuple[Sequence[int], Sequence[int]]],
) -> Surprise:
    """The surprise of sampled answers.

    Args:
        target: The target model.
        law: What they were sampled by.
        answers: Pairs (prompt ids, output ids).
    """
    total = Surprise()
    for prompt_ids, output_ids in answers:
        rows = logits_of_outputs(target, prompt_ids, output_ids, width=WIDTH)
        for logits, token_id in zip(rows, output_ids, strict=True):
            total += _of_token(law, logits, token_id)
    return total


def _of_token(law: SamplingLaw, logits: torch.Tensor, token_id: int) -> Surprise:
    log_probs = law.apply(logits).double().log_softmax(dim=-1)
    own = float(log_probs[token_id])
    if not math.isfinite(own):
        return Surprise(num_tokens=1, num_outside=1)
    kept = log_probs[torch.isfinite(log_probs)]
    probs = kept.exp()
    entropy = -float((probs * kept).sum())
    variance = max(0.0, float((probs * kept.square()).sum()) - entropy**2)
    return Surprise(num_tokens=1, excess=-own - entropy, variance=variance)
