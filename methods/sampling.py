"""The sampling law: temperature, top-k and top-p, in one place for every verifier and for vanilla.

The decode loop applies it to logits before any verifier sees them, so that a draft is judged by the
very distribution that vanilla decoding would sample from.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SamplingLaw:
    """How logits become the law of the next token.

    The order is that of transformers' `generate`: temperature, then top-k, then top-p.

    Attributes:
        temperature: 0 is greedy (logits pass unchanged, verifiers take the argmax); otherwise
            logits are divided by it.
        top_k: Keep the k largest logits (and those equal to the k-th); 0 keeps all.
        top_p: Keep the smallest set of most probable tokens whose probability reaches it, in
            (0, 1]; 1 keeps all.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be ≥ 0 and finite, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be ≥ 0 (0 keeps all tokens), got {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.is_greedy and (self.top_k or self.top_p < 1.0):
            raise ValueError("top_k and top_p have no effect at temperature=0: set a temperature")

    @property
    def is_greedy(self) -> bool:
        """Whether decoding is deterministic."""
        return self.temperature == 0.0

    def apply(self, logits: Float[Tensor, "*rows v"]) -> Float[Tensor, "*rows v"]:
        """Logits of the law, in float32 or better; excluded tokens are -inf."""
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        if self.is_greedy:
            return logits
        # Shifting by the maximum keeps tiny temperatures finite: x / T would overflow.
        logits = (logits - logits.amax(dim=-1, keepdim=True)).double() / self.temperature
        if 0 < self.top_k < logits.shape[-1]:
            kth = logits.topk(self.top_k, dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < kth, float("-inf"))
        if self.top_p < 1.0:
            logits = logits.masked_fill(_outside_nucleus(logits, self.top_p), float("-inf"))
        return logits


def _outside_nucleus(logits: Float[Tensor, "*rows v"], top_p: float) -> Tensor:
    """True at tokens outside the smallest most probable set that reaches `top_p`."""
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probs = ordered.softmax(dim=-1)
    mass_before = probs.cumsum(dim=-1) - probs
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, mass_before >= top_p)
