"""From hidden states to keys: z-score per dimension, principal components, unit length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from primitives.structures.hidden_states import unit_rows

BLOCK_BYTES = 2**26


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """An affine map; its result is scaled to length one.

    Attributes:
        mean: Is subtracted.
        weights: The principal components of the z-scores, divided by the deviations.
    """

    mean: Float[np.ndarray, "d"]
    weights: Float[np.ndarray, "d p"]
    _on_device: dict[torch.device, tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def dim(self) -> int:
        """Dimensions of a key."""
        return int(self.weights.shape[1])

    def __call__(self, hidden: Float[Tensor, "*rows d"]) -> Float[np.ndarray, "*rows p"]:
        """Keys, computed where the hidden states are."""
        if hidden.device.type == "cpu":
            # By numpy: waking torch's threads costs more than projecting the rows of a step.
            return unit_rows((hidden.to(torch.float32).numpy() - self.mean) @ self.weights)
        mean, weights = self._tensors_on(hidden.device)
        return unit_rows(((hidden.to(torch.float32) - mean) @ weights).cpu().numpy())

    def save(self, file: Path) -> None:
        """Writes one array: the mean, then one row per dimension of a key."""
        np.save(file, np.vstack([self.mean, self.weights.T]))

    def _tensors_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._on_device:
            mean, weights = (torch.from_numpy(array) for array in (self.mean, self.weights))
            self._on_device[device] = mean.to(device), weights.to(device)
        return self._on_device[device]

    @classmethod
    def load(cls, file: Path) -> Projection:
        """Reads what `save` wrote."""
        rows = np.load(file)
        return cls(mean=rows[0], weights=np.ascontiguousarray(rows[1:].T))


def fit_projection(
    rows: Float[np.ndarray, "k d"], *, dim: int, num_train: int, seed: int
) -> Projection:
    """Fits the projection on at most `num_train` rows, drawn at random.

    Args:
        rows: Hidden states; read in blocks, and may be a file.
        dim: Dimensions of a key; the hidden size if that is less.
        num_train: Rows that the moments are taken from.
        seed: Of the draw.
    """
    rng = np.random.default_rng(seed)
    chosen = np.arange(len(rows))
    if num_train < len(rows):
        chosen = np.sort(rng.choice(len(rows), num_train, replace=False))
    mean, deviation = _moments(rows, chosen)
    correlation = np.zeros((rows.shape[1], rows.shape[1]))
    for block in _blocks(rows, chosen):
        scores = (block - mean) / deviation
        correlation += scores.T @ scores
    _, vectors = np.linalg.eigh(correlation / len(chosen))  # By rising eigenvalue.
    components = vectors[:, ::-1][:, :dim]
    # The sign of an eigenvector is open; equal input must give equal keys.
    largest = np.abs(components).argmax(axis=0)
    components = components * np.sign(components[largest, np.arange(components.shape[1])])
    weights = (components / deviation[:, None]).astype(np.float32)
    return Projection(mean=mean, weights=np.ascontiguousarray(weights))


def _moments(
    rows: Float[np.ndarray, "k d"], chosen: Int[np.ndarray, "m"]
) -> tuple[Float[np.ndarray, "d"], Float[np.ndarray, "d"]]:
    """Mean and standard deviation; a dimension that never varies gets deviation 1."""
    total, squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for block in _blocks(rows, chosen):
        total += block.sum(axis=0, dtype=np.float64)
    mean = (total / len(chosen)).astype(np.float32)
    for block in _blocks(rows, chosen):
        squares += np.square(block - mean).sum(axis=0, dtype=np.float64)
    deviation = np.sqrt(squares / len(chosen)).astype(np.float32)
    return mean, np.where(deviation > 0, deviation, np.float32(1))


def _blocks(
    rows: Float[np.ndarray, "k d"], chosen: Int[np.ndarray, "m"]
) -> Iterator[Float[np.ndarray, "b d"]]:
    num_rows = max(1, BLOCK_BYTES // (4 * rows.shape[1]))
    for start in range(0, len(chosen), num_rows):
        yield np.asarray(rows[chosen[start : start + num_rows]], dtype=np.float32)
