"""An answer fed to the target model again, token by token: how far is each from the largest logit?

One row per forward, as in vanilla decoding. The gap of an argmax is 0, that of a token which is as
good up to rounding about one spacing of the dtype; a broken loop, mask or cache makes larger ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from methods.targets.base import TargetModel
from primitives.types import DraftTree

NUM_SPACINGS = 2
"""How far below the largest logit a token may be and still be called its equal."""


def spacing(value: float, dtype: torch.dtype) -> float:
    """Distance between neighbouring numbers of a dtype at the size of `value`."""
    info = torch.finfo(dtype)
    exponent = math.floor(math.log2(max(abs(value), info.tiny)))
    return float(info.eps) * 2.0**exponent


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """An output under teacher forcing.

    Attributes:
        gaps: Per output token, from the largest logit to its own; 0 for an argmax.
        spacings: Per output token, the dtype's spacing at the largest logit.
    """

    gaps: tuple[float, ...]
    spacings: tuple[float, ...]

    @property
    def num_outside(self) -> int:
        """Tokens more than `NUM_SPACINGS` below the largest logit."""
        pairs = zip(self.gaps, self.spacings, strict=True)
        return sum(gap > NUM_SPACINGS * unit for gap, unit in pairs)

    @property
    def largest(self) -> float:
        """The largest gap, in spacings."""
        return max(gap / unit for gap, unit in zip(self.gaps, self.spacings, strict=True))


def teacher_force(
    target: TargetModel, prompt_ids: Sequence[int], output_ids: Sequence[int], dtype: torch.dtype
) -> Gaps:
    """The gap of each output token, in forwards of one row."""
    gaps, spacings = [], []
    for logits, token_id in zip(
        logits_of_outputs(target, prompt_ids, output_ids, width=1), output_ids, strict=True
    ):
        best = float(logits.max())
        gaps.append(best - float(logits[token_id]))
        spacings.append(spacing(best, dtype))
    return Gaps(gaps=tuple(gaps), spacings=tuple(spacings))


def count_flips(
    target: TargetModel, prompt_ids: Sequence[int], output_ids: Sequence[int], width: int
) -> int:
    """Tokens of vanilla's output that are no argmax when `width` rows are forwarded at a time.

    No draft and no verifier is involved: what this counts is the width of the forward alone.
    """
    rows = logits_of_outputs(target, prompt_ids, output_ids, width=width)
    return sum(
        int(logits.argmax()) != token_id for logits, token_id in zip(rows, output_ids, strict=True)
    )


@torch.inference_mode()
def logits_of_outputs(
    target: TargetModel, prompt_ids: Sequence[int], output_ids: Sequence[int], *, width: int
) -> Iterator[Float[Tensor, "v"]]:
    """The logits that each output token was chosen from."""
    target.reset()
    start = target.prefill(prompt_ids, reserve=len(output_ids), draft_rows=width)
    yield start.last_logits
    for first in range(0, len(output_ids) - 1, width):
        chain = output_ids[first : min(first + width, len(output_ids) - 1)]
        tree = DraftTree.from_nodes(list(chain), range(-1, len(chain) - 1))
        yield from target.forward_tree(tree).logits
        target.commit(list(range(len(chain))))
