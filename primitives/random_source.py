"""The one door through which verifiers and retrievers draw random numbers.

A verifier's output law can be checked exactly, because a test may hand in a source that walks
through every outcome with its weight instead of drawing one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class RandomSource(Protocol):
    """Random choices."""

    def categorical(self, weights: Float[Tensor, "v"]) -> int:
        """An index drawn with probability proportional to `weights` (non-negative)."""
        ...

    def bernoulli(self, probability: float) -> bool:
        """True with the given probability; values outside [0, 1] are clamped."""
        ...


def target_law(logits: Float[Tensor, "v"]) -> Float[Tensor, "v"]:
    """Probabilities in [0, 1] of the next token, whose sum is 1.

    In float64 on the host: tests and draws must see the same ones, and one row is small.
    """
    return torch.softmax(logits.to("cpu", torch.float64), dim=-1)


@dataclass(frozen=True)
class TorchRandom:
    """Draws from an explicit CPU generator, so that a seed fixes the output on any device.

    Attributes:
        generator: A CPU generator.
    """

    generator: torch.Generator

    @classmethod
    def from_seed(cls, seed: int) -> TorchRandom:
        """A fresh source."""
        return cls(torch.Generator().manual_seed(seed))

    def categorical(self, weights: Float[Tensor, "v"]) -> int:
        """An index drawn with probability proportional to `weights`.

        Raises:
            ValueError: If the weights hold NaN, infinity or a negative number, or sum to zero.
        """
        # Inverse transform in float64 on one uniform draw: torch.multinomial refuses more than
        # 2**24 categories, works in float32, and consumes a number of draws that depends on v.
        weights = weights.to("cpu", torch.float64)
        cumulative = weights.cumsum(0)
        total, least = float(cumulative[-1]), float(weights.min())
        if not (0.0 < total < float("inf") and least >= 0.0):
            raise ValueError(
                "weights must be non-negative with a finite positive sum, got the sum "
                f"{total} and the least {least}"
            )
        draw = torch.rand((), generator=self.generator, dtype=torch.float64) * total
        # right=True skips zero-weight entries: their cumulative value equals their predecessor's.
        return min(int(torch.searchsorted(cumulative, draw, right=True)), len(weights) - 1)

    def bernoulli(self, probability: float) -> bool:
        """True with the given probability."""
        return float(torch.rand((), generator=self.generator, dtype=torch.float64)) < probability
