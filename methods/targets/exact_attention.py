"""Attention computed in float64: its float32 result does not depend on how many rows ask for it.

Quantised layers turn a difference in the last bit of their input into a different integer now and
then, and from layer to layer these grow: with float32 attention, whose sums are ordered by the
shape of the call, logits of a draft tree and of its paths one by one differ by up to their own
standard deviation (SmolLM2-135M in int8). Sums in float64, rounded to float32 at the end, are the
same for every shape, and so is everything behind them.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

EXACT_ATTENTION = "sdpa_float64"


def exact_attention(
    module: torch.nn.Module,
    query: Float[Tensor, "batch heads n head_dim"],
    key: Float[Tensor, "batch kv_heads s head_dim"],
    value: Float[Tensor, "batch kv_heads s value_dim"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "batch n heads value_dim"], None]:
    """transformers' attention interface, over keys and values in float32 or (cached) float64."""
    if kwargs.get("softcap") is not None or kwargs.get("position_bias") is not None:
        raise ValueError("float64 attention takes neither softcap nor position_bias")
    is_prefill = attention_mask is None and query.shape[2] > 1
    output = torch.nn.functional.scaled_dot_product_attention(
        query.double(),
        key.double(),
        value.double(),
        attn_mask=attention_mask,
        is_causal=is_prefill and is_causal is not False,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    return output.to(query.dtype).transpose(1, 2).contiguous(), None


AttentionInterface.register(EXACT_ATTENTION, exact_attention)
AttentionMaskInterface.register(EXACT_ATTENTION, sdpa_mask)
