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

from benchmarks.certificate import NUM_SPACINGS
from methods.targets.base import TargetModel
from primitives.types import DraftTree


def spacing(value: float, dtype: torch.dtype) -> float:
    """Distance between neighbouring numbers of a dtype at the size of `value`."""
    if not math.isfinite(value):
        return math.nan
    info = torch.finfo(dtype)
    exponent = math.floor(math.log2(max(abs(value), info.tiny)))
    return float(info.eps) * 2.0**exponent


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """An output under teacher forcing.

    Attributes:
        gaps: Per output token, from the largest logit to its own; 0 for an argmax, infinite where
            logits are no numbers.
        spacings: Per output token, the dtype's spacing at the largest logit.
    """

    gaps: tuple[float, ...]
    spacings: tuple[float, ...]

    @property
    def in_spacings(self) -> list[float]:
        """The gaps, in spacings of the dtype."""
        pairs = zip(self.gaps, self.spacings, strict=True)
        return [gap / unit if math.isfinite(gap) else math.inf for gap, unit in pairs]

    @property
    def num_outside(self) -> int:
        """Tokens more than `NUM_SPACINGS` below the largest logit."""
        return sum(gap > NUM_SPACINGS for gap in self.in_spacings)


def teacher_force(
    target: TargetModel,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    dtype: torch.dtype,
    judged_ids: Sequence[int] | None = None,
) -> Gaps:
    """The gap of each output token, in forwards of one row.

    Args:
        target: The target model.
        prompt_ids: The prompt.
        output_ids: What is fed, token by token.
        dtype: Of the model's numbers.
        judged_ids: Whose gaps are taken at each place; the output's by default.
    """
    gaps, spacings = [], []
    rows = logits_of_outputs(target, prompt_ids, output_ids, width=1)
    for logits, token_id in zip(rows, judged_ids or output_ids, strict=True):
        best = float(logits.max())
        gap = best - float(logits[token_id])
        gaps.append(gap if math.isfinite(gap) else math.inf)
        spacings.append(spacing(best, dtype))
    return Gaps(gaps=tuple(gaps), spacings=tuple(spacings))


def choices_by_width(
    target: TargetModel, prompt_ids: Sequence[int], output_ids: Sequence[int], width: int
) -> list[int]:
    """The argmax at each place of vanilla's output when `width` rows are forwarded at a time.

    No draft and no verifier is involved: what differs from the output is due to the width alone.
    """
    rows = logits_of_outputs(target, prompt_ids, output_ids, width=width)
    return [int(logits.argmax()) for logits in rows]


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
