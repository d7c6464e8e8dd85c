"""An int8 linear layer whose output rows do not depend on each other: k rows, little more than one.

    rows = round(R x * 127 / max|R x|)      y = int32(rows @ int8_weight) * scale * max|R x|

with one `scale` per output channel and one maximum per input row. R rotates blocks of 64 features
by a Hadamard matrix and the weight holds its inverse: it spreads a feature that dwarfs the others
over its block, which would otherwise leave few levels to the rest of the row.

Source: Ashkboos et al. 2024, QuaRot (arXiv:2404.00456), for R; there it is merged into the model's
weights where possible, here it is the layer's own business and the model's code is untouched.

An output row depends on its input row alone, bit for bit, whatever other rows it is computed with:
R acts on integers that float32 adds exactly in any order, the product's sums are exact integers,
and everything else is elementwise. torch's own dynamic int8 layer has one activation scale for all
rows: there, the rows of a draft change each other's logits.

`torch._int_mm` has the cheapest call of the int8 products (4 us, against 30 us of oneDNN's
`qlinear_pointwise`), which counts with 211 layers; only an LM head of two rows or more would be
faster with the other. `scripts/bench.py` measures the whole model beside float32.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

INT8_MAX = 127
# A sum of more products could exceed int32. With one input feature, torch._int_mm (2.13) hands
# oneDNN a leading dimension that it refuses, and returns uninitialised memory.
IN_FEATURES = range(2, (2**31 - 1) // INT8_MAX**2 + 1)
MAX_BLOCK = 64
# Inputs of the rotation are integers up to 2**17: sums of 64 of them stay exact in float32.
FIXED_POINT = 2.0**17
# A row's maximum is taken as at least this, so that rows of zeros need no case of their own.
TINY = 1e-30
# As tensors: dividing a Python number by a tensor costs 4 us, two tensors 1 us, at each layer.
_FIXED_POINT = torch.tensor(FIXED_POINT)
_INT8_MAX = torch.tensor(float(INT8_MAX))


class Int8Linear(nn.Module):
    """An int8 linear layer with a scale per input row and per output channel; inference only.

    A row of zeros gives exactly the bias; NaN or infinity in a row makes its whole output row
    non-finite. Against float32 the error on Gaussian rows is 1.2 % of the output's norm.

    Args:
        weight: Float weight; rounded to the nearest of 255 levels per output channel (127 on a
            processor whose int8 product is narrower, see `weight_limit`).
        bias: Kept as it is.

    Attributes:
        in_features: Size of an input row.
        out_features: Size of an output row.
        bias: None if the layer has none.
        shared: Set where siblings get the same input; see `SharedRows`.

    Raises:
        RuntimeError: If this processor's int8 product is not exact.
        ValueError: If `in_features` is not in `IN_FEATURES`.
    """

    bias: Tensor | None
    int8_weight: Tensor
    scale: Tensor
    rotation: Tensor

    def __init__(self, weight: Float[Tensor, "out in"], bias: nn.Parameter | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        if self.in_features not in IN_FEATURES:
            raise ValueError(
                f"in_features of an int8 layer must be {IN_FEATURES[0]} to {IN_FEATURES[-1]}, got "
                f"{self.in_features}"
            )
        rotation = hadamard(math.gcd(self.in_features, MAX_BLOCK))
        rotated = _rotate(weight.detach(), rotation) / len(rotation)
        scale = rotated.abs().amax(dim=1, keepdim=True) / weight_limit()  # [out, 1]
        levels = (rotated / torch.where(scale == 0, 1, scale)).round_()
        self.register_buffer("int8_weight", levels.to(torch.int8).t())  # [in, out], columns dense
        self.register_buffer("scale", scale[:, 0] / (INT8_MAX * FIXED_POINT))
        self.register_buffer("rotation", rotation)
        self.register_parameter("bias", bias)
        self.shared: SharedRows | None = None

    @property
    def weight(self) -> Tensor:
        """The weight [out, in] as rounded, in float32: a copy."""
        levels = _rotate(self.int8_weight.t().float(), self.rotation)
        return levels * (self.scale[:, None] * (INT8_MAX * FIXED_POINT))

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """Each output row is a function of its input row alone."""
        if self.shared is None:
            rows, row_scale = quantize_rows(x, self.rotation)
        else:
            rows, row_scale = self.shared.quantize(x, self)
        sums = torch._int_mm(rows, self.int8_weight)  # [rows, out], exact
        y = sums.float().mul_(self.scale).mul_(row_scale)
        if self.bias is not None:
            y.add_(self.bias)
        return y if x.ndim == 2 else y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class SharedRows:
    """Quantises an input once for sibling layers (query, key and value; gate and up).

    The rows are kept from the first sibling's call to the last one's and are reused only for the
    same tensor object, by siblings that have not yet used them. What is not seen: a change of that
    tensor in place between the calls of two siblings.

    Args:
        num_layers: How many siblings share.
    """

    def __init__(self, num_layers: int) -> None:
        self._num_layers = num_layers
        self._input: Tensor | None = None
        self._rows: tuple[Tensor, Tensor] | None = None
        self._served: set[int] = set()

    def quantize(self, x: Tensor, layer: Int8Linear) -> tuple[Tensor, Tensor]:
        """As `quantize_rows`, for one of the siblings."""
        rows = self._rows
        if rows is None or self._input is not x or id(layer) in self._served:
            rows = quantize_rows(x, layer.rotation)
            self._input, self._rows, self._served = x, rows, set()
        self._served.add(id(layer))
        if len(self._served) == self._num_layers:
            self._input = self._rows = None
        return rows


def quantize_rows(
    x: Float[Tensor, "*batch in"], rotation: Float[Tensor, "block block"]
) -> tuple[Int8[Tensor, "rows in"], Float[Tensor, "rows 1"]]:
    """Rows rotated and rounded to [-127, 127], and the scale of each, times 127 * FIXED_POINT.

    Raises:
        ValueError: If `x` is not float32.
    """
    if x.dtype is not torch.float32:
        raise ValueError(f"int8 linear layers take float32 input, got {x.dtype}")
    flat = x.reshape(-1, x.shape[-1])
    # The infinity norm says the same in one call, but is not vectorised: 82 us against 8 us.
    row_max = flat.abs().amax(dim=1, keepdim=True).clamp_min_(TINY)
    rotated = _rotate(torch.mul(flat, _FIXED_POINT / row_max).round_(), rotation)
    rotated_max = rotated.abs().amax(dim=1, keepdim=True)
    rows = rotated.mul_(_INT8_MAX / rotated_max).round_().char()
    return rows, rotated_max.mul_(row_max)


def _rotate(rows: Tensor, rotation: Tensor) -> Tensor:
    """Each block of features of each row times the rotation; a new tensor."""
    return torch.mm(rows.reshape(-1, len(rotation)), rotation).view(rows.shape)


@cache
def hadamard(size: int) -> Float[Tensor, "size size"]:
    """The symmetric matrix of +1 and -1 with H @ H = size * identity; size is a power of two."""
    if size == 1:
        return torch.ones(1, 1)
    return torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), hadamard(size // 2))


@cache
def weight_limit() -> int:
    """The largest |int8 weight| for which this processor's int8 product is exact: 127 or 63.

    x86 processors without VNNI add pairs of products in saturating 16-bit arithmetic: full int8
    times full int8 overflows there, 7-bit weights do not.

    Raises:
        RuntimeError: If neither is exact.
    """
    for limit in (INT8_MAX, INT8_MAX // 2):
        if all(_is_exact(limit, num_rows) for num_rows in (1, 2, 16, 64)):
            return limit
    raise RuntimeError("torch._int_mm is not exact on this processor: use float32 linear layers")


def _is_exact(limit: int, num_rows: int) -> bool:
    rows = torch.full((num_rows, 64), INT8_MAX, dtype=torch.int8)
    weight = torch.full((16, 64), limit, dtype=torch.int8)
    sums = [torch._int_mm(sign * rows, weight.t()) * sign for sign in (1, -1)]
    return all(bool((each == 64 * INT8_MAX * limit).all()) for each in sums)
