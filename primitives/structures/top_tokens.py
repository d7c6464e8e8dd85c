"""The most probable tokens of each row of logits, and their logits.

Blocks of a row whose maximum is not among the k largest maxima hold none of its k largest logits,
so only k blocks are ranked: ranking whole rows is slow on CPUs.

Cost: one maximum over [n, v], one ranking of [n, v / 256 + 256 k].
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 256
"""Logits that are looked at together."""


def top_tokens(logits: Float[Tensor, "n v"], k: int) -> Int[Tensor, "n k"]:
    """The k most probable tokens per row, best first; all of them where there are fewer.

    Logits are compared as float32; of equal ones the smaller id comes first.

    Args:
        logits: On any device; -inf is the least.
        k: At least 1.
    """
    num_rows, vocab_size = logits.shape
    k = min(k, vocab_size)
    num_blocks = vocab_size // BLOCK
    if num_blocks <= 2 * k:
        return _ranked(logits, None, k)
    blocked = logits[:, : num_blocks * BLOCK].reshape(len(logits), num_blocks, BLOCK)
    blocks = _ranked(blocked.amax(dim=-1), None, k)
    offsets = torch.arange(BLOCK, device=logits.device)
    ids = (blocks[:, :, None] * BLOCK + offsets).flatten(1)
    tail = torch.arange(num_blocks * BLOCK, vocab_size, device=logits.device)
    ids = torch.cat([ids, tail.expand(num_rows, -1)], dim=1)
    return _ranked(logits.gather(1, ids), ids, k)


def top_logits(logits: Float[Tensor, "n v"], k: int) -> Float[Tensor, "n k"]:
    """The k largest logits per row, descending; all of them if there are fewer."""
    num_blocks = logits.shape[1] // BLOCK
    if num_blocks > k:
        blocks = logits[:, : num_blocks * BLOCK].reshape(len(logits), num_blocks, BLOCK)
        best = blocks.amax(dim=-1).topk(k).indices[:, :, None].expand(-1, -1, BLOCK)
        rest = logits[:, num_blocks * BLOCK :]
        logits = torch.cat([blocks.gather(1, best).flatten(1), rest], dim=1)
    return logits.topk(min(k, logits.shape[1])).values


def _ranked(
    values: Float[Tensor, "n m"], ids: Int[Tensor, "n m"] | None, k: int
) -> Int[Tensor, "n k"]:
    """The ids of the k largest values per row; column numbers without `ids`."""
    if ids is None:
        ids = torch.arange(values.shape[1], device=values.device).expand(values.shape)
    # Floats as integers of the same order, above the negative id: no two keys are equal. Adding
    # zero makes -0.0 a 0.0.
    bits = (values.float() + 0.0).view(torch.int32).long()
    order = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (order << 32) | (0x7FFFFFFF - ids)
    return ids.gather(1, keys.topk(k, dim=-1).indices)
