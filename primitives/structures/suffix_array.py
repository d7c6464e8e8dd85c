"""Suffix arrays over the reversed text: the longest match of a context's end, in one search.

A chunk holds documents back to back, each followed by a separator that is no token. Its `order`
lists the ends e, that is the positions of continuations, sorted by the text before e read
backwards; so all ends with the same tokens before them are neighbours. Ends without a token before
or behind them in their document are left out.

    tokens   0 1 | 1 0 1 |       backwards before end 1: 0; before 4: 1; before 5: 0 1
    order    1 5 4
    starts   0 2 3               ends behind a 0 have ranks [0, 2), those behind a 1 [2, 3)

Source: Manber and Myers 1993, "Suffix arrays: a new method for on-line string searches"; the
reversed text turns their search for a prefix into one for a suffix.
Cost: O(log n) comparisons of at most `max_len` tokens per chunk and search; an id and 4 bytes per
token. Nothing is copied: the arrays may be mapped files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Integer, UInt

from primitives.structures.suffix_kernels import gather, search, spaced_ends


class Match(NamedTuple):
    """The longest match of a context's end.

    Attributes:
        match_len: Tokens that agree; 0 if there is no match.
        ranges: Triples (chunk, low, high): the ends at ranks [low, high) of the chunk's order.
    """

    match_len: int
    ranges: tuple[tuple[int, int, int], ...]

    @property
    def num_hits(self) -> int:
        """Ends in all ranges."""
        return sum(high - low for _, low, high in self.ranges)


class SuffixArray:
    """One chunk of text with its order; immutable.

    Attributes:
        tokens: Ids and separators; the last one is a separator.
        order: Ends, sorted by the reversed text before them.
        starts: Entry t is the rank of the first end behind token t; one entry more than tokens.
    """

    def __init__(
        self,
        tokens: UInt[np.ndarray, "n"],
        order: Int[np.ndarray, "m"],
        starts: Int[np.ndarray, "v"],
    ) -> None:
        self.tokens, self.order, self.starts = map(_read_only, (tokens, order, starts))

    @classmethod
    def from_tokens(cls, tokens: Int[np.ndarray, "n"], vocab_size: int) -> SuffixArray:
        """Sorts naively, in O(n^2 log n): for small texts.

        Args:
            tokens: Ids below `vocab_size`, and separators of that value; ends with a separator.
            vocab_size: Number of ids.
        """
        text: list[int] = tokens.tolist()
        ends = [e for e in range(1, len(text)) if vocab_size not in text[e - 1 : e + 1]]
        # The separator is the largest value here as in every other order.
        ends.sort(key=lambda end: text[:end][::-1])
        last = [text[end - 1] for end in ends]
        return cls(
            tokens.astype(id_dtype(vocab_size)),
            np.array(ends, dtype=np.int32),
            np.searchsorted(last, np.arange(vocab_size + 1)).astype(np.int32),
        )

    @property
    def separator(self) -> int:
        """What follows each document: one more than the largest id."""
        return len(self.starts) - 1

    def longest_match(
        self, backwards: Sequence[int] | Int[np.ndarray, "q"]
    ) -> tuple[int, int, int]:
        """The longest match of a query that is read from its last token to its first.

        Returns:
            Its length (0 if the last token never occurs), and the range [low, high) of its ends.
        """
        match_len, low, high = search(
            self.tokens, self.order, self.starts, np.asarray(backwards, dtype=np.int64)
        )
        return match_len, low, high

    def behind(self, ends: Int[np.ndarray, "h"], width: int) -> UInt[np.ndarray, "h w"]:
        """The next `width` tokens behind some ends.

        The first separator of a row ends its document; what stands behind it means nothing.
        """
        found: UInt[np.ndarray, "h w"] = gather(self.tokens, ends, width)
        return found

    def continuation(self, end: int, length: int) -> list[int]:
        """Up to `length` ids from `end` on, no further than the end of the document."""
        ids: list[int] = self.tokens[end : end + length].tolist()
        return ids[: ids.index(self.separator)] if self.separator in ids else ids

    def check_integrity(self) -> None:
        """Raises an AssertionError unless the arrays belong together; O(n) memory and time."""
        tokens, order, separator = self.tokens, self.order, self.separator
        assert tokens[-1] == separator, "the last document has no end"
        is_token = tokens != separator
        assert not (tokens > separator).any(), "an id is outside the vocabulary"
        expected = np.flatnonzero(is_token[:-1] & is_token[1:]) + 1
        assert np.array_equal(np.sort(order), expected), "an end is missing or too many"
        last = tokens[order - 1]
        assert np.array_equal(np.searchsorted(last, np.arange(separator + 1)), self.starts)
        assert (last[:-1] <= last[1:]).all(), "an end is in the wrong bucket"
        for left, right in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
            pair = tokens[:left][::-1], tokens[:right][::-1]
            common = min(left, right)
            differs = np.flatnonzero(pair[0][:common] != pair[1][:common])[:1].tolist()
            is_sorted = pair[0][differs[0]] < pair[1][differs[0]] if differs else left < right
            assert is_sorted, f"ends {left} and {right} are in the wrong order"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tokens, self.order, self.starts)


class TokenStore:
    """Several chunks over one vocabulary; immutable, so that copies share the arrays.

    Attributes:
        chunks: At least one.
        vocab_size: Ids in [0, vocab_size) are tokens.
    """

    def __init__(self, chunks: Sequence[SuffixArray], vocab_size: int) -> None:
        if not chunks:
            raise ValueError("a token store has at least one chunk, got none")
        for number, chunk in enumerate(chunks):
            if chunk.separator != vocab_size:
                raise ValueError(
                    f"chunk {number} has {chunk.separator} tokens, vocab_size is {vocab_size}"
                )
        self.chunks, self.vocab_size = tuple(chunks), vocab_size
        self.offsets = np.cumsum([0, *(len(chunk.tokens) for chunk in chunks)]).tolist()

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Iterable[Sequence[int] | Integer[np.ndarray, "_"]]],
        vocab_size: int,
    ) -> TokenStore:
        """A small store in memory; one chunk per group of documents."""
        texts = (
            np.concatenate([np.array([*ids, vocab_size], dtype=np.int64) for ids in group])
            for group in documents
        )
        return cls([SuffixArray.from_tokens(text, vocab_size) for text in texts], vocab_size)

    def longest_match(self, ids: Int[np.ndarray, "s"], *, min_len: int, max_len: int) -> Match:
        """Where the longest match of the end of `ids` ends, over all chunks.

        Args:
            ids: The context; ids outside the vocabulary match nothing.
            min_len: Shorter matches do not count, in tokens, at least 1.
            max_len: Longer ones are not looked for, in tokens.
        """
        backwards = np.array(ids[: -max_len - 1 : -1], dtype=np.int64)
        found = [chunk.longest_match(backwards) for chunk in self.chunks]
        longest = max(found)[0]
        if longest < min_len:
            return Match(0, ())
        ranges = [(n, low, high) for n, (m, low, high) in enumerate(found) if m == longest]
        return Match(longest, tuple(ranges))

    def ends(
        self, match: Match, max_hits: int
    ) -> list[tuple[SuffixArray, int, Int[np.ndarray, "h"]]]:
        """Up to `max_hits` ends of a match, in rank order; if there are more, evenly spaced ones.

        Returns:
            Triples (chunk, position of the chunk in the store, ends in the chunk: at least one).
        """
        num_hits = match.num_hits
        num_taken = min(num_hits, max_hits)
        hits, before = [], 0
        for number, low, high in match.ranges:
            chunk = self.chunks[number]
            ends = spaced_ends(chunk.order, low, high, before, num_hits, num_taken)
            before += high - low
            if len(ends):
                hits.append((chunk, self.offsets[number], ends))
        return hits

    def check_integrity(self) -> None:
        """Raises an AssertionError unless every chunk is sound."""
        for chunk in self.chunks:
            chunk.check_integrity()

    def __deepcopy__(self, memo: dict[int, Any]) -> TokenStore:
        return self


def id_dtype(vocab_size: int) -> np.dtype[Any]:
    """The type of stored ids: the separator `vocab_size` has to fit, too."""
    return np.dtype("<u2" if vocab_size < 2**16 else "<u4")


def _read_only(array: Integer[np.ndarray, "_"]) -> Integer[np.ndarray, "_"]:
    """A view, so that compiled code meets one kind of array: plain ones, even of mapped files."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
