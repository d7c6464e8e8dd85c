"""Bigrams of a model: per token the most probable next ones, behind a fixed text or none.

Source: the model-derived bigrams of N-Grammys (Stewart et al. 2024, arXiv 2411.03786).
Cost: 6 bytes per token and successor; nothing is copied, so the arrays may be mapped files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int


class BigramTable:
    """Immutable, so that copies share the arrays.

    Attributes:
        next_ids: Row i holds the most probable tokens behind token i, best first.
        probs: Their probabilities.
    """

    def __init__(self, next_ids: Int[np.ndarray, "v k"], probs: Float[np.ndarray, "v k"]) -> None:
        self.next_ids, self.probs = np.asarray(next_ids).view(), np.asarray(probs).view()
        self.next_ids.flags.writeable = self.probs.flags.writeable = False

    @property
    def vocab_size(self) -> int:
        """Tokens that have a row."""
        return len(self.next_ids)

    def chains(
        self, token_id: int, num: int, length: int
    ) -> tuple[Int[np.ndarray, "m w"], Float[np.ndarray, "m w"]]:
        """The best successors of a token, each extended by the best successor of its last token.

        Returns:
            At most `num` rows of `length` tokens, and the probability of each token behind the one
            before it; no rows for a token without a row.
        """
        if not 0 <= token_id < self.vocab_size:
            return np.empty((0, length), dtype=np.int64), np.empty((0, length), dtype=np.float64)
        tokens, probs = [self.next_ids[token_id, :num]], [self.probs[token_id, :num]]
        for _ in range(length - 1):
            probs.append(self.probs[tokens[-1], 0])
            tokens.append(self.next_ids[tokens[-1], 0])
        return np.stack(tokens, axis=1), np.stack(probs, axis=1)

    def check_integrity(self) -> None:
        """Raises an AssertionError unless every row ranks distinct tokens."""
        ids, probs = self.next_ids, self.probs.astype(np.float64)
        assert ids.min() >= 0, "a negative id"
        assert ids.max() < self.vocab_size, "an id outside the vocabulary"
        ranked = np.sort(ids, axis=1)
        assert (ranked[:, 1:] != ranked[:, :-1]).all(), "a row repeats a token"
        assert (probs[:, 1:] <= probs[:, :-1]).all(), "a row is not ranked"
        assert probs.min() >= 0
        assert probs.sum(axis=1).max() <= 1.01  # Stored in 16 bits.

    def __deepcopy__(self, memo: dict[int, Any]) -> BigramTable:
        return self
