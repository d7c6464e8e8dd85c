"""Outputs of modules inside a model, taken by hooks: the model's own code stays as it is."""

from __future__ import annotations

from typing import Any, no_type_check

import torch
from torch import Tensor, nn

from methods.targets.base import UnsupportedModel


def inner_layer(model: Any, share: float) -> nn.Module:
    """The decoder layer at a share in (0, 1] of a model's depth.

    Raises:
        UnsupportedModel: If the model has no list of layers.
    """
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", None) or getattr(decoder, "h", None)  # GPT-2's word.
    if layers is None:
        raise UnsupportedModel(
            f"{type(model).__name__} has no list of decoder layers: the output of an inner layer "
            "cannot be taken from it"
        )
    layer: nn.Module = layers[max(1, round(share * len(layers))) - 1]
    return layer


class Capture:
    """Keeps the last output of a decoder, or of a layer, while it is active; without, nothing."""

    def __init__(self, module: nn.Module | None) -> None:
        self.module = module
        self.rows: Tensor = torch.empty(0)

    def __enter__(self) -> Capture:
        if self.module is not None:
            self._handle = self.module.register_forward_hook(self._keep)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.module is not None:
            self._handle.remove()

    @no_type_check
    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        # Layers give a tensor [1, n, d] or, in older releases, a tuple that begins with it.
        states = output if isinstance(output, Tensor) else output[0]
        self.rows = states[0]
