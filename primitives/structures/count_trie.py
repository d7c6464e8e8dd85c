"""The most frequent prefixes of many token sequences, counted without building their whole trie.

A prefix stands for the sequences that start with it. Prefixes are ordered by count (larger first),
then by length (shorter first), then by the first sequence that has them; so the best ones are
closed under taking prefixes, and can be found best first: the sequences of a kept prefix are told
apart by their next token, and the longer prefixes queued.

    sequences a b c, a b d, a e      kept a (3); queued a b (2), a e (1)
                                     kept a b (2); queued a e (1), a b c (1), a b d (1)

Source: the counts of REST (He et al. 2023, arXiv 2311.08252, section 3.3).
Cost: O(h w) for h sequences of w tokens; for each of k kept prefixes, the runs of equal neighbours
among its sequences; O(k) for each prefix that enters the queue.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int, Integer

from primitives.structures.count_trie_kernels import best_prefixes, leaves

BITS = 63


class CountTrie:
    """The `limit` best prefixes of the rows of a matrix.

    Args:
        rows: One sequence each; it ends before the first `end`, or is as long as the row.
        end: No token.
        limit: How many prefixes are wanted, at least 1.

    Attributes:
        rows: The argument.
        counts: Per prefix, best first, the sequences that start with it.
        lengths: Per prefix, in tokens; each comes behind those it starts with.
        firsts: Per prefix, the first of its sequences.
        parents: Per prefix, the index of the one that is a token shorter; -1 for the empty one.
    """

    def __init__(self, rows: Integer[np.ndarray, "h w"], *, end: int, limit: int) -> None:
        row_bits, length_bits = map(int.bit_length, rows.shape)
        if 2 * row_bits + length_bits > BITS:
            raise ValueError(f"{len(rows)} sequences are too many")
        self.rows, self._end, self._limit = rows, end, limit
        self._columns = np.ascontiguousarray(rows.T)
        self._table = best_prefixes(self._columns, end, limit, row_bits, length_bits)
        self.counts, self.lengths, self.firsts, self.parents = self._table

    @property
    def prefixes(self) -> list[tuple[int, ...]]:
        """The tokens of each prefix."""
        rows, lengths = self.rows[self.firsts].tolist(), self.lengths.tolist()
        return [tuple(row[:length]) for row, length in zip(rows, lengths, strict=True)]

    def leaves(
        self, positions: Int[np.ndarray, "h"], root: int
    ) -> Iterator[tuple[tuple[int, ...], float, int, int]]:
        """The prefixes that are not used up by longer ones, by descending score and position.

        A prefix's score is the sum of count / sequences over it and those it starts with.

        Args:
            positions: Of each sequence in its source.
            root: A token that is put before each prefix.

        Returns:
            Tokens, score, position of the first sequence, and the count less that of longer
            prefixes.
        """
        scores, numbers, tokens = leaves(self._columns, self._table, positions, root)
        all_ids = tokens.tolist()
        first_positions, counts, stops = numbers.tolist()
        starts = [0, *stops[:-1]]
        token_ids = [tuple(all_ids[a:b]) for a, b in zip(starts, stops, strict=True)]
        return zip(token_ids, scores.tolist(), first_positions, counts, strict=True)

    def check_integrity(self) -> None:
        """Raises an AssertionError unless the prefixes are consistent with each other."""
        prefixes = self.prefixes
        assert len(set(prefixes)) == len(prefixes) <= self._limit
        room = [*self.counts, len(self.rows)]
        for index, (token_ids, parent) in enumerate(zip(prefixes, self.parents, strict=True)):
            assert parent < index
            assert token_ids
            assert self._end not in token_ids
            assert token_ids[:-1] == (prefixes[parent] if parent >= 0 else ())
            room[parent] -= self.counts[index]
        assert min(room) >= 0, "the continuations of a prefix are more than itself"
