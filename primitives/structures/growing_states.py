"""States of the text so far, one row per committed token, and the cosines of some with the newest.

The rows stay on the device that computed them: only the cosines that are asked for leave it.

Cost: appending is amortised O(d) per row, p cosines take O(p * d); 4 d bytes per row.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

FIRST_CAPACITY = 64
TINY = 1e-12
"""Shorter rows are as good as zero."""


class GrowingStates:
    """Rows of unit length, float32; rows of zeros stay.

    Args:
        states: The first rows, on any device.
    """

    def __init__(self, states: Float[Tensor, "n d"]) -> None:
        self._rows = _empty(FIRST_CAPACITY, states)
        self._num_rows = 0
        self.append(states)

    def __len__(self) -> int:
        return self._num_rows

    def append(self, states: Float[Tensor, "n d"]) -> None:
        """Adds rows behind the ones that are there."""
        num_rows = self._num_rows + len(states)
        if num_rows > len(self._rows):
            grown = _empty(max(num_rows, 2 * len(self._rows)), self._rows)
            grown[: self._num_rows] = self._rows[: self._num_rows]
            self._rows = grown
        new = self._rows[self._num_rows : num_rows]
        new.copy_(states)
        new.div_(torch.linalg.vector_norm(new, dim=-1, keepdim=True).clamp_(min=TINY))
        self._num_rows = num_rows

    def cosines(self, rows: Int[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
        """Cosines of some rows with the newest one.

        Args:
            rows: Indices in [0, number of rows).
        """
        indices = torch.from_numpy(rows).to(self._rows.device)
        newest = self._rows[self._num_rows - 1]
        return self._rows.index_select(0, indices).mv(newest).cpu().numpy()

    def check_integrity(self) -> None:
        """Raises an AssertionError if a row has another length than 1 and is not zero."""
        assert self._num_rows <= len(self._rows)
        lengths = self._rows[: self._num_rows].norm(dim=-1)
        assert (((lengths - 1).abs() < 1e-4) | (lengths == 0)).all(), "a row of another length"


def _empty(num_rows: int, like: Float[Tensor, "n d"]) -> Float[Tensor, "m d"]:
    return like.new_empty((num_rows, like.shape[1]), dtype=torch.float32)
