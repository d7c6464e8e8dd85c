"""An int8 linear layer whose output rows do not depend on each other: k rows, little more than one.

    rows = round(x * 127 / max|x|)    y = int32(rows @ int8_weight) * scale * max|x|

with one `scale` per output channel and one max|x| per input row. The sums are exact integers and
everything else is elementwise, so that an output row depends on its input row alone, bit for bit,
whatever other rows it is computed with. torch's own dynamic int8 layer has one activation scale
for all rows, with which the rows of a draft change each other's logits.

`torch._int_mm` has the cheapest call of the int8 products (4 us, against 30 us of oneDNN's
`qlinear_pointwise`), which counts with 211 layers; only an LM head of two rows or more would be
faster with the other.
"""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

INT8_MAX = 127
# A sum of more products could exceed int32. With one input feature, torch._int_mm (2.13) hands
# oneDNN a leading dimension that it refuses, and returns uninitialised memory.
IN_FEATURES = range(2, (2**31 - 1) // INT8_MAX**2 + 1)
# As a tensor: dividing a Python number by a tensor costs 4 us, two tensors 1 us, at each layer.
_INT8_MAX = torch.tensor(float(INT8_MAX))


class Int8Linear(nn.Module):
    """An int8 linear layer with a scale per input row and per output channel; inference only.

    A row of zeros gives exactly the bias; NaN and infinity in a row make its whole output row
    non-finite. Against float32 the error on Gaussian rows is 1 % of the output's norm.

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

    def __init__(self, weight: Float[Tensor, "out in"], bias: nn.Parameter | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        if self.in_features not in IN_FEATURES:
            raise ValueError(
                f"in_features of an int8 layer must be {IN_FEATURES[0]} to {IN_FEATURES[-1]}, got "
                f"{self.in_features}"
            )
        limit = weight_limit()
        scale = weight.detach().abs().amax(dim=1, keepdim=True) / limit  # [out, 1]
        levels = (weight.detach() / torch.where(scale == 0, 1, scale)).round_()
        self.register_buffer("int8_weight", levels.to(torch.int8).t())  # [in, out], columns dense
        self.register_buffer("scale", scale[:, 0] / INT8_MAX)
        self.register_parameter("bias", bias)
        self.shared: SharedRows | None = None

    @property
    def weight(self) -> Tensor:
        """The weight [out, in] as rounded, in float32: a copy."""
        return self.int8_weight.t() * (self.scale[:, None] * INT8_MAX)

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """Each output row is a function of its input row alone."""
        rows, row_max = quantize_rows(x) if self.shared is None else self.shared.quantize(x, self)
        sums = torch._int_mm(rows, self.int8_weight)  # [rows, out], exact
        y = sums.float().mul_(self.scale).mul_(row_max)
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

    def quantize(self, x: Tensor, layer: nn.Module) -> tuple[Tensor, Tensor]:
        """As `quantize_rows`, for one of the siblings."""
        rows = self._rows
        if rows is None or self._input is not x or id(layer) in self._served:
            self._input, self._rows, self._served = x, (rows := quantize_rows(x)), set()
        self._served.add(id(layer))
        if len(self._served) == self._num_layers:
            self._input = self._rows = None
        return rows


def quantize_rows(
    x: Float[Tensor, "*batch in"],
) -> tuple[Int8[Tensor, "rows in"], Float[Tensor, "rows 1"]]:
    """Rows rounded to [-127, 127], and max|x| of each.

    Below max|x| = 4e-37 the factor overflows and the integers mean nothing; times max|x|, they
    still come out as zero or next to it.

    Raises:
        ValueError: If `x` is not float32.
    """
    if x.dtype is not torch.float32:
        raise ValueError(f"int8 linear layers take float32 input, got {x.dtype}")
    flat = x.reshape(-1, x.shape[-1])
    # The infinity norm says the same in one call, but is not vectorised: 82 us against 8 us.
    row_max = flat.abs().amax(dim=1, keepdim=True)
    return torch.mul(flat, _INT8_MAX / row_max).round_().char(), row_max


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
    expected = 64 * INT8_MAX * limit
    return all(
        bool((torch._int_mm(sign * rows, weight.t()) == sign * expected).all()) for sign in (1, -1)
    )
