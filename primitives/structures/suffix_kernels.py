"""Compiled loops of the suffix array.

Cost: a search makes O(log n) comparisons.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Int, Integer, UInt

from primitives.structures.kernel import kernel


@kernel
@no_type_check
def common_len(
    tokens: UInt[np.ndarray, "n"], end: int, backwards: Integer[np.ndarray, "q"], most: int
) -> int:
    """How many of the `most` first tokens of a query agree with those before `end`."""
    most = min(most, end)
    for length in range(most):
        if tokens[end - 1 - length] != backwards[length]:
            return length
    return most


@kernel
@no_type_check
def search(
    tokens: UInt[np.ndarray, "n"],
    order: Int[np.ndarray, "m"],
    starts: Int[np.ndarray, "v"],
    backwards: Integer[np.ndarray, "q"],
) -> tuple[int, int, int]:
    """Length of the longest match, and the ranks [low, high) of its ends.

    Ids outside the vocabulary, which `starts` knows, match nothing.
    """
    for position in range(len(backwards)):
        if not 0 <= backwards[position] < len(starts) - 1:
            backwards = backwards[:position]
            break
    if len(backwards) == 0:
        return 0, 0, 0
    low, high = np.int64(starts[backwards[0]]), np.int64(starts[backwards[0] + 1])
    first, last = low, high - 1
    longest, best = 0, low
    while low < high:
        rank = (low + high) // 2
        end = order[rank]
        length = common_len(tokens, end, backwards, len(backwards))
        if length > longest:
            longest, best = length, rank
        is_less = length < len(backwards) and (
            length == end or tokens[end - 1 - length] < backwards[length]
        )
        if is_less:
            low = rank + 1
        else:
            high = rank
    if longest <= 1:
        return longest, first, last + 1
    below = reach(tokens, order, backwards, longest, best, -1, best - first)
    above = reach(tokens, order, backwards, longest, best, 1, last - best)
    return longest, best - below, best + above + 1


@kernel
@no_type_check
def reach(
    tokens: UInt[np.ndarray, "n"],
    order: Int[np.ndarray, "m"],
    backwards: Integer[np.ndarray, "q"],
    length: int,
    rank: int,
    sign: int,
    room: int,
) -> int:
    """How far the ends that match `length` tokens go on from `rank`, at most `room` ranks."""
    far, step = 0, 1
    is_growing = True
    while step > 0:
        end = order[rank + sign * min(far + step, room)]
        if far + step <= room and common_len(tokens, end, backwards, length) == length:
            far += step
        else:
            is_growing = False
        step = step * 2 if is_growing else step // 2
    return far


@kernel
@no_type_check
def spaced_ends(
    order: Int[np.ndarray, "m"], low: int, high: int, before: int, num_hits: int, num_taken: int
) -> Int[np.ndarray, "h"]:
    """The ends at ranks [low, high) that are among the evenly spaced ones of all hits.

    Hit number i * num_hits // num_taken is the ith one taken; `before` hits are in other chunks.
    """
    first = -(-before * num_taken // num_hits)
    stop = -(-(before + high - low) * num_taken // num_hits)
    ends = np.empty(stop - first, dtype=np.int64)
    for place in range(len(ends)):
        hit = first + place
        if num_taken < num_hits:
            hit = hit * num_hits // num_taken
        ends[place] = order[low - before + hit]
    return ends


@kernel
@no_type_check
def gather(
    tokens: UInt[np.ndarray, "n"], ends: Int[np.ndarray, "h"], width: int
) -> UInt[np.ndarray, "h w"]:
    """The tokens from each end on; those behind the last token are copies of it."""
    columns = np.empty((width, len(ends)), dtype=tokens.dtype)
    last = len(tokens) - 1
    for column in range(width):  # The first one waits for memory, the others find it cached.
        for row in range(len(ends)):
            columns[column, row] = tokens[np.uint64(min(ends[row] + column, last))]
    return columns.T
