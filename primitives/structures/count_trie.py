"""The most frequent prefixes of many token sequences, counted without building their trie.

A prefix stands for the sequences that start with it. Prefixes are ordered by count (larger first),
then by length (shorter first), then by the first sequence that has them; so the best ones are
closed under taking prefixes.

Sorted sequences that start with the same prefix are neighbours: a prefix begins wherever a sequence
differs from the one before it in one of its first tokens, and counts up to where the next begins.

    sorted   begins at length 1 2 3       prefixes   count
    a b c                     x x x       a, ab, abc   3, 2, 1
    a b d                     . . x             abd          1
    a e                       . x .          ae           1

Source: the counts of REST (He et al. 2023, arXiv 2311.08252, section 3.3).
Cost: O(w h log h) for h distinct sequences of w tokens, in a fixed number of array operations.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from jaxtyping import Int, Integer

HANDFUL = 6
"""Up to this many sequences a dictionary is faster than arrays."""
FEW = 256
"""Up to this many sequences, merging and dropping some costs more than it saves."""
SHORT = 2
"""Tokens that groups are judged by before they are dropped."""
BITS = 63


class CountTrie:
    """The `limit` best prefixes of the rows of a matrix.

    Args:
        rows: One sequence each; it ends before the first `end`, or is as long as the row.
        end: No token.
        limit: How many prefixes are wanted, at least 1.

    Attributes:
        prefixes: Best first, so that each comes behind those it starts with.
        counts: Per prefix, the sequences that start with it.
        firsts: Per prefix, the first of those sequences.
        parents: Per prefix, the index of the one that is a token shorter; -1 for the empty one.
    """

    def __init__(self, rows: Integer[np.ndarray, "h w"], *, end: int, limit: int) -> None:
        self._num_sequences, self._max_len = rows.shape
        self._end, self._limit = end, limit
        self._sequence_bits = self._num_sequences.bit_length()
        self._length_bits = self._max_len.bit_length()
        if 2 * self._sequence_bits + self._length_bits > BITS:
            raise ValueError(f"{self._num_sequences} sequences are too many")
        self._name(rows, self._count_all(rows) if len(rows) <= HANDFUL else self._best_keys(rows))

    def check_integrity(self) -> None:
        """Raises an AssertionError unless the prefixes are consistent with each other."""
        assert len(set(self.prefixes)) == len(self.prefixes) <= self._limit
        room = [*self.counts, self._num_sequences]
        for index, (token_ids, parent) in enumerate(zip(self.prefixes, self.parents, strict=True)):
            assert parent < index
            assert token_ids
            assert self._end not in token_ids
            assert token_ids[:-1] == (self.prefixes[parent] if parent >= 0 else ())
            room[parent] -= self.counts[index]
        assert min(room) >= 0, "the continuations of a prefix are more than itself"

    def _best_keys(self, rows: Integer[np.ndarray, "h w"]) -> Int[np.ndarray, "k"]:
        """The best prefixes as integers in ascending order.

        What a count lacks to the number of sequences, length and first sequence stand side by side,
        so that integers compare as prefixes do.
        """
        if len(rows) <= FEW:
            firsts = np.arange(len(rows))
            return self._cut(self._keys(_Sorted(rows, self._end), firsts, np.ones_like(firsts), 0))
        firsts, weights = _merged(rows)
        rows = rows[firsts]
        if len(rows) <= FEW or self._max_len <= SHORT:
            return self._cut(self._keys(_Sorted(rows, self._end), firsts, weights, 0))
        short = _Sorted(rows[:, :SHORT], self._end)
        keys = self._cut(self._keys(short, firsts, weights, 0))
        # Nothing longer counts more than this; and where counts are equal, the shorter one wins.
        least = self._unpack(keys)[0][-1] if len(keys) == self._limit else 0
        left = short.order[short.counts_per_row(weights) > least]
        if len(left) == 0:
            return keys
        longer = self._keys(_Sorted(rows[left], self._end), firsts[left], weights[left], SHORT)
        return self._cut(np.concatenate((keys, longer)))

    def _count_all(self, rows: Integer[np.ndarray, "h w"]) -> Int[np.ndarray, "k"]:
        """The same for a few rows."""
        counts: Counter[tuple[int, ...]] = Counter()
        firsts: dict[tuple[int, ...], int] = {}
        for number, row in enumerate(rows.tolist()):
            length = row.index(self._end) if self._end in row else len(row)
            prefixes = [tuple(row[:n]) for n in range(1, length + 1)]
            counts.update(prefixes)
            for prefix in prefixes:
                firsts.setdefault(prefix, number)
        keys = [self._pack(counts[p], len(p), first) for p, first in firsts.items()]
        return np.array(sorted(keys)[: self._limit], dtype=np.int64)

    def _keys(
        self,
        group: _Sorted,
        firsts: Int[np.ndarray, "r"],
        weights: Int[np.ndarray, "r"],
        min_len: int,
    ) -> Int[np.ndarray, "k"]:
        """Keys of all prefixes longer than `min_len`."""
        num_rows = len(group.order)
        is_new = group.is_new[min_len:]
        heads = np.flatnonzero(is_new)
        counts = np.add.reduceat(_repeated(weights[group.order], len(is_new)), heads)
        first = np.minimum.reduceat(_repeated(firsts[group.order], len(is_new)), heads)
        keys: Int[np.ndarray, "k"] = self._pack(counts, heads // num_rows + (min_len + 1), first)
        if group.is_over is not None:  # Ends begin groups as tokens do.
            keys = keys[~group.is_over[min_len:].reshape(-1)[heads]]
        return keys

    def _pack(self, count: Any, length: Any, first: Any) -> Any:
        missing = self._num_sequences - count
        return (missing << self._length_bits | length) << self._sequence_bits | first

    def _unpack(
        self, keys: Int[np.ndarray, "k"]
    ) -> tuple[Int[np.ndarray, "k"], Int[np.ndarray, "k"], Int[np.ndarray, "k"]]:
        """Counts, lengths and first sequences."""
        rest, firsts = keys >> self._sequence_bits, keys & ((1 << self._sequence_bits) - 1)
        lengths = rest & ((1 << self._length_bits) - 1)
        return self._num_sequences - (rest >> self._length_bits), lengths, firsts

    def _cut(self, keys: Int[np.ndarray, "k"]) -> Int[np.ndarray, "best"]:
        if len(keys) > 4 * self._limit:
            keys = np.partition(keys, self._limit)[: self._limit]
        return np.sort(keys)[: self._limit]

    def _name(self, rows: Integer[np.ndarray, "h w"], keys: Int[np.ndarray, "k"]) -> None:
        counts, lengths, firsts = self._unpack(keys)
        self.firsts: list[int] = firsts.tolist()
        self.counts: list[int] = counts.tolist()
        self.prefixes: list[tuple[int, ...]] = [
            tuple(row[:length])
            for row, length in zip(rows[firsts].tolist(), lengths.tolist(), strict=True)
        ]
        indices = {prefix: index for index, prefix in enumerate(self.prefixes)}
        indices[()] = -1
        self.parents = [indices[prefix[:-1]] for prefix in self.prefixes]


class _Sorted:
    """Rows in lexicographic order, and where prefixes begin.

    Attributes:
        order: Numbers of the rows.
        is_new: Entry [d, r]: row r of that order has another prefix of d + 1 tokens than row r - 1.
        is_over: Entry [d, r]: row r ends at or before token d; None if no row ends early.
    """

    def __init__(self, rows: Integer[np.ndarray, "r w"], end: int) -> None:
        self.order = np.lexsort(rows.T[::-1])
        columns = rows.T[:, self.order]
        self.is_new = np.ones(columns.shape, dtype=bool)
        np.not_equal(columns[:, 1:], columns[:, :-1], out=self.is_new[:, 1:])
        np.logical_or.accumulate(self.is_new, axis=0, out=self.is_new)
        is_over = columns == end
        has_end = is_over.any()
        self.is_over = np.logical_or.accumulate(is_over, axis=0) if has_end else None

    def counts_per_row(self, weights: Int[np.ndarray, "r"]) -> Int[np.ndarray, "r"]:
        """In that order, the weight of all rows that share all tokens with a row; 0 if it ends."""
        heads = np.flatnonzero(self.is_new[-1])
        counts = np.add.reduceat(weights[self.order], heads)
        per_row = np.repeat(counts, np.diff(heads, append=len(weights)))
        return per_row if self.is_over is None else np.where(self.is_over[-1], 0, per_row)


def _repeated(values: Int[np.ndarray, "r"], times: int) -> Int[np.ndarray, "_"]:
    return np.broadcast_to(values, (times, len(values))).reshape(-1)


def _merged(
    rows: Integer[np.ndarray, "h w"],
) -> tuple[Int[np.ndarray, "r"], Int[np.ndarray, "r"]]:
    """First number and count of each distinct row; a few equal rows may stay apart.

    Rows are sorted by a hash. Where two hashes collide, equal rows may not be neighbours; then they
    are counted apart here, and together where prefixes are counted.
    """
    num_rows, width = rows.shape
    words = np.zeros((num_rows, -(-width * rows.itemsize // 8)), dtype=np.uint64)
    words.view(rows.dtype)[:, :width] = rows
    columns = list(words.T)
    hashes = np.zeros(num_rows, dtype=np.uint64)
    for column in columns:
        hashes = (hashes ^ hashes >> np.uint64(29) ^ column) * np.uint64(0x9E3779B97F4A7C15)
    bits = np.uint64(num_rows.bit_length())
    packed = hashes >> bits << bits | np.arange(num_rows, dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    is_new = np.zeros(num_rows, dtype=bool)
    is_new[0] = True
    for column in columns:
        ordered = column[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    heads = np.flatnonzero(is_new)
    return order[heads], np.diff(heads, append=num_rows)
