"""Replaces the linear layers of a float32 CPU model in place by ones that are cheap for many rows.

The model's code is untouched: the layers are swapped under their names, the LM head included. A
head whose weight is tied to the embedding gets its own packed copy and the embedding stays as it
is; other float weights are released layer by layer.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from methods.targets.int8_linear import Int8Linear, SharedRows
from methods.targets.prepacked_linear import PrepackedLinear

SIBLINGS = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
)
"""Names of layers in one block that get the same input. A name that is missing here costs only
time: each layer then quantises its input for itself."""


def linear_kernels() -> dict[str, bool]:
    """What pays off with this build of torch on this processor.

    Returns:
        `prepacked`: MKL's packed product is there; `prepack_linears` needs it. `int8`: the int8
        product is a vectorised one; elsewhere `quantize_linears_int8` gives the same numbers, but
        slowly.
    """
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    return {
        "prepacked": has_mkl and hasattr(torch.ops.mkl, "_mkl_linear"),
        "int8": has_onednn and is_x86,
    }


def prepack_linears(model: nn.Module) -> int:
    """Replaces each `nn.Linear` (and GPT-2's `Conv1D`) by a `PrepackedLinear`.

    Subclasses of them, and a `model` that is itself a linear layer, are left alone.

    Returns:
        The number of layers replaced.

    Raises:
        ValueError: If torch has no MKL, or the model is not float32 on CPU, or a layer has hooks,
            which would be lost. The model is then unchanged.
    """
    if not linear_kernels()["prepacked"]:
        raise ValueError("prepacked linear layers need a torch with MKL: use the stock layers")
    return _replace_linears(model, PrepackedLinear)


def quantize_linears_int8(model: nn.Module) -> int:
    """Replaces each `nn.Linear` (and GPT-2's `Conv1D`) by an `Int8Linear`.

    Subclasses of them, and a `model` that is itself a linear layer, are left alone.

    Returns:
        The number of layers replaced.

    Raises:
        RuntimeError: If this processor's int8 product is not exact.
        ValueError: If the model is not float32 on CPU, or a layer has hooks, which would be lost
            (the model is then unchanged), or a layer's width is not in `int8_linear.IN_FEATURES`.
    """
    num_replaced = _replace_linears(model, Int8Linear)
    for block in model.modules():
        for names in SIBLINGS:
            children = [block._modules.get(name) for name in names]
            siblings = [child for child in children if isinstance(child, Int8Linear)]
            if len(siblings) > 1:
                shared = SharedRows(len(siblings))
                for layer in siblings:
                    layer.shared = shared
    return num_replaced


def _replace_linears(
    model: nn.Module, layer_type: Callable[[Tensor, nn.Parameter | None], nn.Module]
) -> int:
    _check_float32_cpu(model)
    places = _linear_places(model)
    num_layers = len(places)
    while places:  # popped one by one, so that each original is freed before the next is packed
        linear, slots = places.popitem()
        weight = linear.weight if type(linear) is nn.Linear else linear.weight.t()  # [out, in]
        if linear.bias is not None:
            linear.bias.requires_grad_(False)
        replacement = layer_type(weight, linear.bias).train(linear.training)
        for parent, name in slots:
            setattr(parent, name, replacement)
    return num_layers


def _linear_places(model: nn.Module) -> dict[Any, list[tuple[nn.Module, str]]]:
    """Each linear layer -> (parent, name) of all places where it is; mostly one."""
    places: dict[Any, list[tuple[nn.Module, str]]] = {}
    for path, parent in model.named_modules():
        for name, child in parent._modules.items():
            if type(child) not in (nn.Linear, Conv1D) or child is None:
                continue
            if child._forward_hooks or child._forward_pre_hooks:
                full_name = f"{path}.{name}".lstrip(".")
                raise ValueError(f"{full_name} has hooks: replace linear layers first")
            places.setdefault(child, []).append((parent, name))
    return places


def _check_float32_cpu(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise ValueError(
                f"fast CPU linear layers need a model in float32 on cpu, but {name} is "
                f"{parameter.dtype} on {parameter.device}: load it with dtype=float32 and "
                f"device=cpu, or use the stock layers"
            )
