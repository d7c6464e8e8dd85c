"""Forwards of fixed shapes, compiled: what a small model on a fast GPU needs to keep it busy.

A tree of n nodes is padded to the next size of a fixed list, and attends to the whole cache under
a mask, so that every step has one of few shapes. Padded rows attend to themselves, are written
behind the tree, and are forgotten with it.

    committed      tree            padding    free
    [0 ..... s-1]  [s .. s+n-1]    [.. s+b-1] [.. capacity-1]      b = bucket of n

Cost: attention over the capacity instead of the rows in use, and rows of padding; in exchange no
launch of single kernels. One compilation per bucket and capacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from methods.targets.kv_cache import TreeCache
from methods.targets.transfer import upload

CompileMode = Literal["inductor", "cudagraphs"]
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Rows of a forward; larger trees are padded to a multiple of the last one."""
MAX_COMPILATIONS = 64


def bucket_of(num_rows: int) -> int:
    """The rows of the padded forward."""
    fitting = (size for size in BUCKETS if size >= num_rows)
    return next(fitting, -(-num_rows // BUCKETS[-1]) * BUCKETS[-1])


class StaticForward:
    """A compiled forward of a model, over its cache's whole buffers.

    Args:
        model: A causal model whose forward takes a `TreeCache`.
        mode: `inductor` fuses kernels; `cudagraphs` also replays them as one graph (CUDA).
    """

    def __init__(self, model: Any, mode: CompileMode) -> None:
        torch_mode = "reduce-overhead" if mode == "cudagraphs" else None
        self._forward: Any = torch.compile(model, mode=torch_mode, dynamic=False)
        # Buckets and capacities are meant to be compiled one by one; more than eight of them would
        # silently run uncompiled.
        torch._dynamo.config.recompile_limit = MAX_COMPILATIONS
        torch._dynamo.config.fail_on_recompile_limit_hit = True
        # Hooks come and go with what a retriever needs.
        torch._dynamo.config.skip_nnmodule_hook_guards = False

    def __call__(
        self,
        ids: np.ndarray,
        positions: np.ndarray,
        mask: np.ndarray,
        *,
        cache: TreeCache,
        device: torch.device,
        additive: torch.dtype | None,
        arguments: Mapping[str, Any],
    ) -> tuple[Any, int]:
        """The model's output for the padded rows, and how many of them count.

        Args:
            ids: New tokens [m].
            positions: Their positions [m].
            mask: Row i tells what new row i attends to [m, rows in the cache + m].
            cache: Holds the rows before the new ones.
            device: Where the inputs go.
            additive: Dtype of a mask that is added to the scores; None for a boolean one.
            arguments: Passed to the model, the cache among them.
        """
        num_new, end = mask.shape
        size, start = bucket_of(num_new), end - num_new
        padding = np.arange(num_new, size)
        inputs = np.zeros((2, size), dtype=np.int64)
        inputs[:, :num_new] = ids, positions
        whole = np.zeros((size, cache.capacity), dtype=bool)
        whole[:num_new, :end] = mask
        whole[padding, start + padding] = True
        token_ids, places = upload(inputs, device)
        with cache.written_at(np.arange(start, start + size)):
            output = self._forward(
                input_ids=token_ids[None],
                position_ids=places[None],
                attention_mask=as_attention_mask(whole, device, additive),
                **arguments,
            )
        cache.note_rows(end)
        return output, num_new


def as_attention_mask(
    mask: np.ndarray, device: torch.device, additive: torch.dtype | None
) -> Tensor:
    """[1, 1, rows, columns] on a device, boolean or to be added to the scores."""
    tensor = upload(mask, device)[None, None]
    if additive is None:
        return tensor
    scores = torch.zeros(tensor.shape, dtype=additive, device=device)
    return scores.masked_fill(~tensor, torch.finfo(additive).min)
