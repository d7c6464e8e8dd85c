"""The most frequent prefixes of many token sequences, found without counting the rare ones.

A prefix stands for the sequences that start with it. Prefixes are ordered by count (larger first),
then by length (shorter first), then by the first sequence that has them; so the best ones are
closed under taking prefixes. Groups of sequences are split token by token, and a group that can
hold none of the best prefixes any more is dropped: its count bounds those of all that is longer.

Few sequences are split by dictionaries. Many are first merged where they are equal, and then split
by sorting integers in which group, tokens and sequence stand side by side, until few are left.

Cost: O(h log h) per token of depth for h distinct sequences still of interest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Int, Integer

FEW = 192
"""Up to this many sequences are split in plain Python."""
BITS = 63


class CountTrie:
    """The `limit` best prefixes of the rows of a matrix.

    Args:
        rows: One sequence each; it ends before the first `end`, or is as long as the row.
        end: Larger than all tokens.
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
        self._token_bits = end.bit_length()
        if 2 * self._sequence_bits + max(self._length_bits, self._token_bits) > BITS:
            raise ValueError(f"{self._num_sequences} sequences are too many")
        # The best prefixes so far, as integers in ascending order: what the count lacks to that of
        # the empty prefix, length and first sequence side by side, which compare as prefixes do.
        self._keys: list[int] = []
        self._split(rows)
        self._name_prefixes(rows)

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

    def _split(self, rows: Integer[np.ndarray, "h w"]) -> None:
        if len(rows) <= FEW:
            few_firsts, few_weights = _merged_few(rows)
            distinct = rows[few_firsts] if len(few_firsts) < len(rows) else rows
            self._hash_levels(distinct.tolist(), [list(range(len(distinct)))], few_firsts, few_weights, 0)
            return
        firsts, weights = _merged(rows)
        rows = rows[firsts]
        groups = np.zeros(len(rows), dtype=np.int64)
        depth, members = 0, np.arange(len(rows))
        while depth < self._max_len and len(members) > FEW:
            room = (BITS - 2 * self._sequence_bits) // self._token_bits
            width = min(room, self._max_len - depth)
            tokens = rows[members, depth : depth + width]
            members, groups = self._sort_level(tokens, members, groups, firsts, weights, depth)
            depth += width
        cuts = np.flatnonzero(np.diff(groups, prepend=-1, append=-1)).tolist()
        self._hash_levels(
            rows[members].tolist(),
            [list(range(low, high)) for low, high in pairwise(cuts)],
            firsts[members].tolist(),
            weights[members].tolist(),
            depth,
        )

    def _sort_level(
        self,
        tokens: Integer[np.ndarray, "h w"],
        members: Int[np.ndarray, "h"],
        groups: Int[np.ndarray, "h"],
        firsts: Int[np.ndarray, "r"],
        weights: Int[np.ndarray, "r"],
        depth: int,
    ) -> tuple[Int[np.ndarray, "i"], Int[np.ndarray, "i"]]:
        """Splits all groups by several tokens; returns who is still of interest, and its group."""
        packed = groups
        width = tokens.shape[1]
        is_over = np.zeros(len(tokens), dtype=bool)
        for column in tokens.T:
            is_over |= column == self._end  # What stands behind an end must not be told apart.
            packed = packed << self._token_bits | np.where(is_over, self._end, column)
        packed = packed << self._sequence_bits | members
        packed.sort()
        members = packed & ((1 << self._sequence_bits) - 1)
        member_weights, member_firsts = weights[members], firsts[members]
        for taken in range(1, width + 1):
            prefixes = packed >> (self._sequence_bits + (width - taken) * self._token_bits)
            heads = np.concatenate(([0], np.flatnonzero(prefixes[1:] != prefixes[:-1]) + 1))
            counts = np.add.reduceat(member_weights, heads)
            is_open = counts > self._least_count()
            is_open &= prefixes[heads] & ((1 << self._token_bits) - 1) != self._end
            # Deeper tokens come before the sequence in the sort: a head need not be the first.
            group_firsts = np.minimum.reduceat(member_firsts, heads)
            keys = self._keys_of(counts[is_open], group_firsts[is_open], depth + taken)
            self._keep(keys.tolist())
        is_open &= counts > self._least_count()
        sizes = np.diff(heads, append=len(packed))
        groups = np.repeat(np.arange(int(is_open.sum())), sizes[is_open])
        return members[np.repeat(is_open, sizes)], groups

    def _hash_levels(
        self,
        rows: list[list[int]],
        groups: list[list[int]],
        firsts: list[int],
        weights: list[int],
        depth: int,
    ) -> None:
        """Splits the groups that are left until none is, with a dictionary per group."""
        step = 1 << self._sequence_bits  # From a key to that of the same with one token more.
        columns = list(zip(*rows, strict=True))
        while groups and depth < self._max_len:
            parts = [part for group in groups for part in _parts(group, columns[depth], self._end)]
            depth += 1
            counts = [sum([weights[member] for member in part]) for part in parts]
            keys = [
                self._keys_of(count, firsts[part[0]], depth)
                for count, part in zip(counts, parts, strict=True)
            ]
            self._keep(keys)
            worst = self._keys[-1] if len(self._keys) == self._limit else 1 << BITS
            groups = []
            for key, part in zip(keys, parts, strict=True):
                if key + step > worst:
                    continue
                if len(part) > 1:
                    groups.append(part)
                    continue
                row = rows[part[0]]
                length = row.index(self._end) if self._end in row else self._max_len
                self._keys += range(key + step, key + (length - depth + 1) * step, step)
        self._keep([])

    def _keep(self, keys: list[int]) -> None:
        self._keys += keys
        self._keys.sort()
        del self._keys[self._limit :]

    def _least_count(self) -> int:
        """No group of this count or less can hold a longer prefix that is to be kept."""
        return self._unpacked(self._keys[-1])[0] if len(self._keys) == self._limit else 0

    def _keys_of(self, count: Any, first: Any, length: int) -> Any:
        """Key of a prefix, or keys of arrays of them."""
        missing = self._num_sequences - count
        return (missing << self._length_bits | length) << self._sequence_bits | first

    def _unpacked(self, key: int) -> tuple[int, int, int]:
        """Count, length and first sequence."""
        rest, first = key >> self._sequence_bits, key & ((1 << self._sequence_bits) - 1)
        length = rest & ((1 << self._length_bits) - 1)
        return self._num_sequences - (rest >> self._length_bits), length, first

    def _name_prefixes(self, rows: Integer[np.ndarray, "h w"]) -> None:
        keys = np.array(self._keys, dtype=np.int64)
        firsts = keys & ((1 << self._sequence_bits) - 1)
        lengths = keys >> self._sequence_bits & ((1 << self._length_bits) - 1)
        counts = self._num_sequences - (keys >> (self._sequence_bits + self._length_bits))
        self.firsts: list[int] = firsts.tolist()
        self.counts: list[int] = counts.tolist()
        self.prefixes: list[tuple[int, ...]] = [
            tuple(row[:length])
            for row, length in zip(rows[firsts].tolist(), lengths.tolist(), strict=True)
        ]
        indices = {prefix: index for index, prefix in enumerate(self.prefixes)}
        indices[()] = -1
        self.parents = [indices[prefix[:-1]] for prefix in self.prefixes]


def _parts(group: list[int], column: Sequence[int], end: int) -> Iterable[list[int]]:
    """The group by the token in a column, without the sequences that are over."""
    parts: dict[int, list[int]] = {}
    for member in group:
        token_id = column[member]
        if token_id in parts:
            parts[token_id].append(member)
        else:
            parts[token_id] = [member]
    parts.pop(end, None)
    return parts.values()


def _merged_few(rows: Integer[np.ndarray, "h w"]) -> tuple[list[int], list[int]]:
    """First number and count of each distinct row, in order."""
    row_type = np.dtype((np.void, rows.shape[1] * rows.itemsize))
    texts = np.ascontiguousarray(rows).view(row_type).ravel().tolist()
    counts = Counter(texts)
    if len(counts) == len(texts):
        return list(range(len(texts))), [1] * len(texts)
    firsts = dict(zip(reversed(texts), range(len(texts) - 1, -1, -1), strict=True))
    return [firsts[text] for text in counts], list(counts.values())


def _merged(
    rows: Integer[np.ndarray, "h w"],
) -> tuple[Int[np.ndarray, "r"], Int[np.ndarray, "r"]]:
    """First number and count of each distinct row, in order; a few rows may stay unmerged.

    Rows are sorted by a hash. Where two hashes collide, equal rows may not be neighbours; then they
    are counted apart here, and together when they are split.
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
    firsts, counts = order[heads], np.diff(heads, append=num_rows)
    by_first = np.argsort(firsts)
    return firsts[by_first], counts[by_first]
