"""A dictionary of n-grams, each with the tree of what followed it in a corpus.

N-grams are found by a hash of their tokens, read backwards, so that those that end a text are
hashed one after the other; a hit is compared token by token. A tree lists its nodes by falling
count, each behind its parent, so the first k nodes are the best tree of k nodes.

    "4 5" ten times, of these     node        0     1     2
    six before 7 (four of them    token_ids   7     8     9
    before 7 8), three before 9   parents   ROOT    0   ROOT
                                  counts      6     4     3

Source: CREST (Ho et al. 2024, arXiv 2408.04678): n-grams mapped to precomputed token trees.
Cost: O(log m) comparisons for m n-grams per length that is looked up. Nothing is copied: the arrays
may be mapped files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Integer, UInt

HASH_START, HASH_FACTOR = 0xCBF29CE484222325, 0x100000001B3
HASH_BITS = 64
ROOT = 255
"""The parent of nodes right behind the n-gram; nodes are numbered below it."""


class Tree(NamedTuple):
    """What followed an n-gram, best first.

    Attributes:
        match_len: Tokens of the n-gram; 0 if none was found.
        num_hits: Occurrences that were counted.
        token_ids: Of the nodes.
        parents: Index of each node's parent; `ROOT` right behind the n-gram.
        counts: Occurrences that each node's path followed.
    """

    match_len: int
    num_hits: int
    token_ids: Sequence[int]
    parents: Sequence[int]
    counts: Sequence[int]


NO_TREE = Tree(0, 0, (), (), ())


class NgramTrees:
    """Immutable, so that copies share the arrays.

    Attributes:
        ngrams: One n-gram per row, read backwards; behind its tokens stands `vocab_size`.
        hashes: Of the rows, ascending.
        num_hits: Occurrences of each that were counted.
        offsets: Where the nodes of each begin; one entry more than n-grams.
        token_ids: Of all nodes; likewise the rest.
        parents: Within a tree; `ROOT` right behind the n-gram.
        counts: Occurrences that a node's path followed.
        vocab_size: Ids in [0, vocab_size) are tokens.
    """

    def __init__(
        self,
        *,
        ngrams: UInt[np.ndarray, "m w"],
        hashes: UInt[np.ndarray, "m"],
        num_hits: UInt[np.ndarray, "m"],
        offsets: UInt[np.ndarray, "m_plus_1"],
        token_ids: UInt[np.ndarray, "t"],
        parents: UInt[np.ndarray, "t"],
        counts: UInt[np.ndarray, "t"],
        vocab_size: int,
    ) -> None:
        self.ngrams, self.hashes, self.num_hits = ngrams, hashes, num_hits
        self.offsets, self.token_ids = offsets, token_ids
        self.parents, self.counts, self.vocab_size = parents, counts, vocab_size

    def longest_match(self, ids: Integer[np.ndarray, "s"], *, min_len: int, max_len: int) -> Tree:
        """The tree of the longest n-gram that ends a text; `NO_TREE` if there is none.

        Args:
            ids: The text.
            min_len: Shorter n-grams do not count, in tokens, at least 1.
            max_len: Longer ones are not looked for, in tokens.
        """
        width = min(max_len, self.ngrams.shape[1])
        backwards = ids[: -width - 1 : -1].tolist()
        hashes = list(backward_hashes(backwards))
        for length in range(len(backwards), min_len - 1, -1):
            row = int(np.searchsorted(self.hashes, np.uint64(hashes[length - 1])))
            if row < len(self.hashes) and self._is_at(row, backwards[:length]):
                return self._tree(row, length)
        return NO_TREE

    def _is_at(self, row: int, backwards: list[int]) -> bool:
        stored: list[int] = self.ngrams[row].tolist()
        padding = [self.vocab_size] * (len(stored) - len(backwards))
        return stored == backwards + padding

    def _tree(self, row: int, length: int) -> Tree:
        nodes = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
        return Tree(
            match_len=length,
            num_hits=int(self.num_hits[row]),
            token_ids=self.token_ids[nodes].tolist(),
            parents=self.parents[nodes].tolist(),
            counts=self.counts[nodes].tolist(),
        )

    def check_integrity(self) -> None:
        """Raises an AssertionError unless every n-gram is found and its tree is one."""
        assert (self.hashes[1:] > self.hashes[:-1]).all(), "hashes are not in order"
        assert len(self.offsets) == len(self.ngrams) + 1
        assert self.offsets[-1] == len(self.token_ids) == len(self.parents) == len(self.counts)
        for row, stored in enumerate(self.ngrams.tolist()):
            backwards = [token_id for token_id in stored if token_id != self.vocab_size]
            assert self._is_at(row, backwards), "a separator inside an n-gram"
            assert list(backward_hashes(backwards))[-1] == self.hashes[row], "a wrong hash"
            self._check_tree(self._tree(row, len(backwards)))

    def _check_tree(self, tree: Tree) -> None:
        assert tree.counts, "an n-gram without a tree"
        assert max(tree.token_ids) < self.vocab_size
        room = dict(enumerate(tree.counts)) | {ROOT: tree.num_hits}
        assert list(tree.counts) == sorted(tree.counts, reverse=True)
        for node, (parent, count) in enumerate(zip(tree.parents, tree.counts, strict=True)):
            assert parent == ROOT or parent < node, "a node before its parent"
            room[parent] -= count
        assert min(room.values()) >= 0, "the children of a node count more than itself"
        nodes = list(zip(tree.parents, tree.token_ids, strict=True))
        assert len(set(nodes)) == len(nodes), "a node repeats"

    def __deepcopy__(self, memo: dict[int, Any]) -> NgramTrees:
        return self


def backward_hashes(backwards: Sequence[int]) -> list[int]:
    """FNV-1a over whole tokens: the hash after each token of a text that is read backwards."""
    hashes, value = [], HASH_START
    for token_id in backwards:
        value = (value ^ token_id) * HASH_FACTOR % 2**HASH_BITS
        hashes.append(value)
    return hashes


def hashes_of_rows(ngrams: UInt[np.ndarray, "m w"], vocab_size: int) -> UInt[np.ndarray, "m"]:
    """The last of `backward_hashes` for many n-grams at once; `vocab_size` stands for no token."""
    values = np.full(len(ngrams), HASH_START, dtype=np.uint64)
    for column in ngrams.T:
        # Products of 64-bit integers wrap around, as the hash wants it.
        hashed = (values ^ column.astype(np.uint64)) * np.uint64(HASH_FACTOR)
        values = np.where(column == vocab_size, values, hashed)
    return values
