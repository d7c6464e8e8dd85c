"""Compiled loops over the counts of what follows the matches of a text.

Cost: each run of equal sequences is visited once per kept prefix of it.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int, Integer

from primitives.structures.kernel import kernel


@kernel
@no_type_check
def equal_runs(columns: Integer[np.ndarray, "w h"]) -> tuple[int, Int[np.ndarray, "h"]]:
    """How many runs of equal rows there are; and where the next begins, for first rows of runs."""
    num_rows = columns.shape[1]
    is_new = np.zeros(num_rows, dtype=np.bool_)
    for column in columns:
        for row in range(1, num_rows):
            is_new[row] |= column[row] != column[row - 1]
    following, head, num_runs = np.empty(num_rows, dtype=np.int32), 0, 1
    for row in range(1, num_rows):
        if is_new[row]:
            following[head] = row
            head = row
            num_runs += 1
    following[head] = num_rows
    return num_runs, following


@kernel
@no_type_check
def best_prefixes(
    columns: Integer[np.ndarray, "w h"], end: int, limit: int, row_bits: int, length_bits: int
) -> Int[np.ndarray, "4 k"]:
    """The most frequent prefixes, best first: counts, lengths, first rows, indices of parents.

    A key holds what the count lacks to the number of rows, the length and the first row, so that
    integers compare as prefixes do. `keys` is a queue that stays sorted: what is taken from it
    stays where it is, as all that comes later is worse; at its other end, the worst fall out.
    """
    width, num_rows = columns.shape
    limit = min(limit, num_rows * width)
    keys, parents = np.empty(limit, dtype=np.int64), np.empty(limit, dtype=np.int64)
    # A group is a list of runs: each run knows the next one of its group, at last `num_rows`.
    num_runs, following = equal_runs(columns)
    weights = following - np.arange(num_rows, dtype=np.int32)
    slots = np.empty(4 * num_runs, dtype=np.int32)  # By hash of the token: a group, or -1.
    heads, tails = np.empty(num_runs, dtype=np.int32), np.empty(num_runs, dtype=np.int32)
    sizes = np.empty(num_runs, dtype=np.int32)
    num_keys, index = 0, -1
    row, count, depth = 0, num_rows, 0
    while True:
        # Split a group by its next token.
        mask = 1
        while mask < 2 * min(count, num_runs):
            mask *= 2
        slots[:mask] = -1
        mask -= 1
        num_groups, column = 0, columns[depth]
        while row < num_rows:
            token, next_row = column[row], following[row]
            if token != end:
                slot = token & mask
                while slots[slot] >= 0 and column[heads[slots[slot]]] != token:
                    slot = (slot + 1) & mask
                group = slots[slot]
                if group < 0:
                    group = num_groups
                    num_groups += 1
                    slots[slot], heads[group], sizes[group] = group, row, 0
                else:
                    following[tails[group]] = row
                tails[group] = row
                sizes[group] += weights[row]
            row = next_row
        for group in range(num_groups):
            following[tails[group]] = num_rows
            missing = np.int64(num_rows - sizes[group])
            key = ((missing << length_bits | depth + 1) << row_bits) | np.int64(heads[group])
            if num_keys == limit:
                if key > keys[limit - 1]:
                    continue
                num_keys -= 1
            place = num_keys
            while place > 0 and keys[place - 1] > key:
                keys[place], parents[place] = keys[place - 1], parents[place - 1]
                place -= 1
            keys[place], parents[place] = key, index
            num_keys += 1
        # Take the next group; at best, one of its children is as good but longer.
        is_taken = False
        while not is_taken and index + 1 < num_keys:
            index += 1
            row = keys[index] & ((1 << row_bits) - 1)
            depth = keys[index] >> row_bits & ((1 << length_bits) - 1)
            count = num_rows - (keys[index] >> row_bits + length_bits)
            is_kept = num_keys < limit or keys[index] + (1 << row_bits) < keys[limit - 1]
            is_taken = depth < width and is_kept
        if not is_taken:
            prefixes = np.empty((4, num_keys), dtype=np.int64)
            for place in range(num_keys):
                prefixes[0, place] = num_rows - (keys[place] >> row_bits + length_bits)
                prefixes[1, place] = keys[place] >> row_bits & ((1 << length_bits) - 1)
                prefixes[2, place] = keys[place] & ((1 << row_bits) - 1)
                prefixes[3, place] = parents[place]
            return prefixes


@kernel
@no_type_check
def leaves(
    columns: Integer[np.ndarray, "w h"],
    prefixes: Int[np.ndarray, "4 k"],
    positions: Int[np.ndarray, "h"],
    root: int,
) -> tuple[Float[np.ndarray, "l"], Int[np.ndarray, "3 l"], Int[np.ndarray, "t"]]:
    """The prefixes that are not used up by longer ones, by descending score and position.

    Returns:
        Scores; positions, counts, and where each one's tokens end in the third array, in which
        they stand one after the other and start with `root`.
    """
    counts, lengths, firsts, parents = prefixes
    num = len(counts)
    scores, left = np.empty(num), counts.copy()
    for index in range(num):
        parent = parents[index]
        above = 0.0
        if parent >= 0:
            above = scores[parent]
            left[parent] -= counts[index]
        scores[index] = above + counts[index] / columns.shape[1]
    ranked = np.empty(num, dtype=np.int64)
    num_leaves, num_tokens = 0, 0
    for index in range(num):
        if left[index] > 0:
            place = num_leaves
            while place > 0 and (
                scores[ranked[place - 1]] < scores[index]
                or (
                    scores[ranked[place - 1]] == scores[index]
                    and positions[firsts[ranked[place - 1]]] < positions[firsts[index]]
                )
            ):
                ranked[place] = ranked[place - 1]
                place -= 1
            ranked[place] = index
            num_leaves += 1
            num_tokens += 1 + lengths[index]
    ranked = ranked[:num_leaves]
    numbers, tokens = np.empty((3, num_leaves), dtype=np.int64), np.empty(num_tokens, np.int64)
    stop = 0
    for place in range(num_leaves):
        index = ranked[place]
        tokens[stop] = root
        for column in range(lengths[index]):
            tokens[stop + 1 + column] = columns[column, firsts[index]]
        stop += 1 + lengths[index]
        numbers[0, place], numbers[1, place] = positions[firsts[index]], left[index]
        numbers[2, place] = stop
    return scores[ranked], numbers, tokens
