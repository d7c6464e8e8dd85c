"""N-grams of a text, found by their first token: per token the ones seen last.

    ngram 3, capacity 2, text a b c a b d a c b      a: (c b), (b d)      b: (d a), (c a)
                                                     (b c) behind a is the oldest and forgotten

Source: the n-gram pool of lookahead decoding (Fu et al. 2024, arXiv 2402.02057, section 3.2).
Cost: O(ngram) per appended token and O(capacity) per lookup, whatever the length of the text.
"""

from __future__ import annotations

from collections.abc import Iterable


class NgramPool:
    """A pool that grows with a text.

    Args:
        ngram: Tokens of an n-gram, the first one included, at least 2.
        capacity: Most n-grams per first token, at least 1.
    """

    def __init__(self, ngram: int, capacity: int) -> None:
        self.ngram, self.capacity = ngram, capacity
        self._window: list[int] = []
        self._num_tokens = 0
        # A dict keeps the order of insertion: what is seen again is put at the end.
        self._pools: dict[int, dict[tuple[int, ...], int]] = {}

    def append(self, token_ids: Iterable[int]) -> None:
        """Continues the text; its new n-grams enter the pool."""
        for token_id in token_ids:
            self._num_tokens += 1
            self._window.append(token_id)
            if len(self._window) < self.ngram:
                continue
            first, *rest = self._window
            del self._window[0]
            pool = self._pools.setdefault(first, {})
            pool.pop(tuple(rest), None)
            pool[tuple(rest)] = self._num_tokens
            if len(pool) > self.capacity:
                del pool[next(iter(pool))]

    def behind(self, token_id: int) -> list[tuple[tuple[int, ...], int]]:
        """What followed a token, and the length of the text when it did, latest first."""
        return list(self._pools.get(token_id, {}).items())[::-1]

    def check_integrity(self) -> None:
        """Raises an AssertionError unless sizes and orders are what they should be."""
        assert len(self._window) < self.ngram
        for pool in self._pools.values():
            assert 1 <= len(pool) <= self.capacity
            assert all(len(rest) == self.ngram - 1 for rest in pool)
            ends = list(pool.values())
            assert ends == sorted(set(ends)), "not in the order in which they were seen"
            assert self.ngram <= ends[0] <= ends[-1] <= self._num_tokens
