"""Keys made from hidden states: what a store of them offers, and one that grows with the text.

A key is a unit vector that stands for a position of a text; its value is what followed there. The
inner product of two keys is the cosine by which neighbours are ranked.

Cost: a search of n keys of p dimensions takes O(n * p), appending amortised O(p) per row.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

FIRST_CAPACITY = 64


@runtime_checkable
class HiddenStateStore(Protocol):
    """A corpus that is searched by hidden states of the target model; never changed.

    A position names a token of the corpus: the first one behind the state that a key was made from.
    """

    @property
    def dim(self) -> int:
        """Dimensions of a key."""
        ...

    def project(self, hidden: Float[Tensor, "*rows d"]) -> Float[np.ndarray, "*rows p"]:
        """Hidden states of the target model as keys: float32, of unit length."""
        ...

    def search(
        self, query: Float[np.ndarray, "p"], num: int
    ) -> tuple[Int[np.ndarray, "m"], Float[np.ndarray, "m"]]:
        """Positions and cosines of at most `num` neighbours, best first, ties by lower position."""
        ...

    def continuation(self, position: int, length: int) -> tuple[int, ...]:
        """At most `length` ids from a position on, up to the end of its document."""
        ...


class GrowingKeys:
    """Keys of the text so far, searched exactly."""

    def __init__(self, dim: int) -> None:
        self._rows = np.zeros((FIRST_CAPACITY, dim), dtype=np.float32)
        self._num_rows = 0

    def __len__(self) -> int:
        return self._num_rows

    def append(self, rows: Float[np.ndarray, "n p"]) -> None:
        """Adds keys behind the ones that are there."""
        num_rows = self._num_rows + len(rows)
        if num_rows > len(self._rows):
            grown = np.zeros((max(num_rows, 2 * len(self._rows)), self.dim), dtype=np.float32)
            grown[: self._num_rows] = self._rows[: self._num_rows]
            self._rows = grown
        self._rows[self._num_rows : num_rows] = rows
        self._num_rows = num_rows

    @property
    def dim(self) -> int:
        """Dimensions of a key."""
        return self._rows.shape[1]

    def search(
        self, query: Float[np.ndarray, "p"], num: int, *, end: int
    ) -> tuple[Int[np.ndarray, "m"], Float[np.ndarray, "m"]]:
        """Rows and cosines of the `num` best keys before row `end`, ties by later row."""
        cosines = self._rows[:end] @ query
        rows = np.arange(end)
        if num < end:  # Keeps all that tie with the last one kept, so that ties break by row.
            rows = np.flatnonzero(cosines >= np.partition(cosines, end - num)[end - num])
        best = rows[np.lexsort((-rows, -cosines[rows]))[:num]]
        return best, cosines[best]

    def check_integrity(self) -> None:
        """Raises AssertionError if a key has no unit length, or something lies behind the end."""
        lengths = np.linalg.norm(self._rows[: self._num_rows], axis=1)
        assert self._num_rows <= len(self._rows)
        assert np.all((np.abs(lengths - 1) < 1e-4) | (lengths == 0)), "a key of another length"
        assert not self._rows[self._num_rows :].any(), "keys behind the end"


def raw_keys(hidden: Float[Tensor, "*rows d"]) -> Float[np.ndarray, "*rows d"]:
    """Hidden states themselves as keys, for want of a projection."""
    return unit_rows(hidden.to("cpu", torch.float32).numpy())


def unit_rows(rows: Float[np.ndarray, "*rows p"]) -> Float[np.ndarray, "*rows p"]:
    """Rows scaled to length one; rows of zeros stay."""
    lengths = np.sqrt(np.square(rows).sum(axis=-1, keepdims=True))
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)
