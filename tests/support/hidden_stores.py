"""A small hidden-state store for retrievers that search one."""

from __future__ import annotations

import functools

import numpy as np
from torch import Tensor

from primitives.structures.hidden_states import unit_rows

VOCAB_SIZE, NUM_TOKENS, NUM_KEYS, DIM = 6, 600, 400, 3


class ToyHiddenStore:
    """Random keys over random tokens; takes hidden states of any size, and searches exactly.

    A key is the direction of the first three dimensions of a hidden state. What a key is followed
    by depends on its direction, so that its neighbours do not continue with just any token.
    """

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.keys = unit_rows(rng.normal(size=(NUM_KEYS, DIM)).astype(np.float32))
        self.token_ids = rng.integers(0, VOCAB_SIZE, NUM_TOKENS)
        self.positions = np.sort(rng.choice(NUM_TOKENS, NUM_KEYS, replace=False))
        likely = np.arctan2(self.keys[:, 1], self.keys[:, 0]) / (2 * np.pi) * VOCAB_SIZE
        is_likely = rng.random(NUM_KEYS) < 0.9
        first_ids = np.floor(likely).astype(np.int64) % VOCAB_SIZE
        self.token_ids[self.positions[is_likely]] = first_ids[is_likely]

    @property
    def dim(self) -> int:
        return DIM

    def project(self, hidden: Tensor) -> np.ndarray:
        head = hidden[..., :DIM].to("cpu").float().numpy()
        missing = [(0, 0)] * (head.ndim - 1) + [(0, DIM - head.shape[-1])]
        return unit_rows(np.pad(head, missing))

    def search(self, query: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
        cosines = self.keys @ query
        order = np.lexsort((self.positions, -cosines))[:num]
        return self.positions[order], cosines[order]

    def continuation(self, position: int, length: int) -> tuple[int, ...]:
        return tuple(self.token_ids[position : position + length].tolist())


@functools.cache
def toy_hidden_store() -> ToyHiddenStore:
    """The store itself; nothing changes it."""
    return ToyHiddenStore()
