"""Attention that shares keys and values between the heads of a group, in two precisions.

`sdpa_grouped` is what `sdpa` computes. With a mask, transformers copies keys and values once per
head of their group before the product; here torch's kernel reads them where they are cached.

`sdpa_float64` does so in float64, and its float32 result does not depend on how many rows ask for
it. Quantised layers turn a difference in the last bit of their input into another integer now and
then, and from layer to layer these differences grow: with float32 attention, whose sums are ordered
by the shape of the call, logits of a draft tree and of its paths one by one differ visibly. Sums in
float64, rounded to float32 at the end, are the same for every shape unless one lies within an error
of float64 of a rounding boundary; the tests on SmolLM2 ask for equality and get it.

Source: grouped-query attention, Ainslie et al. 2023 (arXiv 2305.13245).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

GROUPED_ATTENTION = "sdpa_grouped"
EXACT_ATTENTION = "sdpa_float64"


def grouped_attention(
    module: torch.nn.Module,
    query: Float[Tensor, "b heads n head_dim"],
    key: Float[Tensor, "b groups s head_dim"],
    value: Float[Tensor, "b groups s value_dim"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    dtype: torch.dtype | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "b n heads value_dim"], None]:
    """transformers' attention interface; `dtype` is that of the products, None keeps the query's.

    Raises:
        ValueError: If the model asks for a soft cap or a position bias, which are not served.
    """
    if kwargs.get("softcap") is not None or kwargs.get("position_bias") is not None:
        raise ValueError("grouped attention takes neither softcap nor position_bias")
    dtype = dtype or query.dtype
    heads, num_rows = query.shape[1], query.shape[2]
    is_prefill = attention_mask is None and num_rows > 1 and is_causal is not False
    is_packed = attention_mask is None and num_rows == 1
    if is_packed:  # One row of all heads of a group is a few rows of one head: the cheapest call.
        query = query.reshape(len(query), key.shape[1], -1, query.shape[3])
    output = torch.nn.functional.scaled_dot_product_attention(
        query.to(dtype),
        key.to(dtype),
        value.to(dtype),
        attn_mask=attention_mask,
        is_causal=is_prefill,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    ).to(query.dtype)
    if is_packed:
        output = output.reshape(len(output), heads, 1, -1)
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED_ATTENTION, grouped_attention)
AttentionInterface.register(EXACT_ATTENTION, partial(grouped_attention, dtype=torch.float64))
for name in (GROUPED_ATTENTION, EXACT_ATTENTION):
    AttentionMaskInterface.register(name, sdpa_mask)
