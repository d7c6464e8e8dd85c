"""The n-grams of a chunk of text by their frequency, read off the order of its suffixes.

All ends behind one n-gram are neighbours in the order of a `SuffixArray`: a run.

    text 0 1 2 0 1 2     order 1 4 2 5 3     runs of one token [0, 2), [2, 4) and [4, 5): 0, 1, 2
                                             of two [2, 4) and [4, 5): 0 1 twice, 1 2 once

Source: Nagao and Mori 1994, "A new method of n-gram statistics for large number of n".
Cost: O(m) for m ends, vectorised, per length up to the first of which no n-gram is frequent, and
sorting the runs; a few arrays of m elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt

from primitives.structures.suffix_array import SuffixArray


class Run(NamedTuple):
    """An n-gram and where it occurs.

    Attributes:
        length: Its tokens.
        low: Rank of the first end behind it in the order of the chunk.
        high: One more than the rank of the last one.
    """

    length: int
    low: int
    high: int


def frequent_ngrams(
    chunk: SuffixArray, *, min_ngram: int, max_ngram: int, min_count: int
) -> Iterator[Run]:
    """N-grams that a token follows, by falling count, then by length, then by rank.

    Args:
        chunk: The text.
        min_ngram: Least length, in tokens, at least 1.
        max_ngram: Largest length, in tokens, at least `min_ngram`.
        min_count: Least occurrences with a token behind them, at least 1.
    """
    if len(chunk.order) == 0:
        return
    found = [
        np.stack([np.full(len(low), length), low, high])
        for length, low, high in _runs_by_length(chunk, max_ngram, min_count)
        if length >= min_ngram
    ]
    if not found:
        return
    lengths, lows, highs = np.concatenate(found, axis=1)
    for place in np.lexsort((lows, lengths, lows - highs)).tolist():
        yield Run(int(lengths[place]), int(lows[place]), int(highs[place]))


def _runs_by_length(
    chunk: SuffixArray, max_ngram: int, min_count: int
) -> Iterator[tuple[int, Int[np.ndarray, "r"], Int[np.ndarray, "r"]]]:
    """Per length of n-grams, where runs of at least `min_count` begin and end; while there are."""
    is_long = np.ones(len(chunk.order), dtype=bool)
    is_same = np.ones(len(chunk.order), dtype=bool)
    is_same[:1] = False
    for length in range(1, max_ngram + 1):
        is_long, tokens = _token_before(chunk, length, is_long)
        is_same[1:] &= is_long[1:] & is_long[:-1] & (tokens[1:] == tokens[:-1])
        low = np.flatnonzero(~is_same)
        high = np.append(low[1:], len(is_same))
        is_kept = is_long[low] & (high - low >= min_count)
        if not is_kept.any():
            return  # A longer n-gram occurs at most as often as its end.
        yield length, low[is_kept], high[is_kept]


def _token_before(
    chunk: SuffixArray, distance: int, is_long: Bool[np.ndarray, "m"]
) -> tuple[Bool[np.ndarray, "m"], UInt[np.ndarray, "m"]]:
    """The token some way before each end, and whether the document reaches that far back."""
    places = chunk.order - distance
    tokens = chunk.tokens[np.maximum(places, 0)]
    return is_long & (places >= 0) & (tokens != chunk.separator), tokens
