"""A float32 linear layer on MKL's packed matrix product: many rows for little more than one.

`scripts/bench.py` prints what k rows cost against one, with these layers and with stock ones.
oneDNN's prepacked product was slower at every
number of rows up to 32: its calls cost 25 us each before any arithmetic. Packed for 64 rows, a
row came out the same, bit for bit, with any number of other rows in every shape tried; MKL does not
promise that.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

# MKL packs for an expected number of rows and is right for any other. Packed for 64, it is never
# slower than stock at 1 to 300 rows; packed for 16 or fewer, it loses from 32 rows on.
PACKED_ROWS = 64


class PrepackedLinear(nn.Module):
    """A float32 linear layer on a weight that MKL has packed once; inference only.

    Args:
        weight: Copied into the packed format; later changes to it are not seen.
        bias: Kept as it is.

    Attributes:
        in_features: Size of an input row.
        out_features: Size of an output row.
        bias: None if the layer has none.
    """

    bias: Tensor | None

    def __init__(self, weight: Float[Tensor, "out in"], bias: nn.Parameter | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_parameter("bias", bias)
        self._pack(weight)

    def _pack(self, weight: Tensor) -> None:
        contiguous = weight.detach().contiguous()
        self._packed = torch.ops.mkl._mkl_reorder_linear_weight(contiguous, PACKED_ROWS)
        # The kernel asks the original weight for its shape only. NaN, in case that ever changes.
        self._shape = torch.full((1, 1), torch.nan).expand(weight.shape)

    @property
    def weight(self) -> Tensor:
        """A copy of the weight [out, in], read back through the kernel: exact, but slow."""
        one_hot = torch.eye(self.in_features)
        rows = self.in_features
        unpacked = torch.ops.mkl._mkl_linear(one_hot, self._packed, self._shape, None, rows)
        return unpacked.t().contiguous()  # type: ignore[no-any-return]

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """Equals `nn.Linear` up to float32 rounding."""
        # The number of rows selects the packed kernel if it equals the one given here: always.
        num_rows = x.numel() // self.in_features
        return torch.ops.mkl._mkl_linear(  # type: ignore[no-any-return]
            x, self._packed, self._shape, self.bias, num_rows
        )

    def __getstate__(self) -> dict[str, Any]:
        # MKL forbids copying its packed data to another address: copies pack anew.
        return {**self.__dict__, "_packed": self.weight}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._pack(self._packed)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
