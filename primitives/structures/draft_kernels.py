"""Compiled choice of draft nodes by the counts of a suffix automaton.

A node is a state; its estimated probability given its parent is the ratio of their counts, and the
product of these along its path is how likely it is to be accepted.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int

from primitives.structures.automaton_kernels import (
    BEST_EDGE,
    COUNT,
    FIRST_EDGE,
    LAST_END,
    NEXT_EDGE,
    TARGET,
    TOKEN,
)
from primitives.structures.kernel import kernel


@kernel
@no_type_check
def follow(
    states, edges, state: int, room: int, min_prob: float, numbers: Int[np.ndarray, "r 3"],
    probs: Float[np.ndarray, "r 2"],
) -> int:  # fmt: skip
    """Draws a chain along the most frequent children, as `grow` draws a tree."""
    path_prob, num = 1.0, 0
    while num < room and states[state, BEST_EDGE] >= 0:
        edge = states[state, BEST_EDGE]
        child = edges[edge, TARGET]
        prob = states[child, COUNT] / states[state, COUNT]
        path_prob *= prob
        if path_prob < min_prob:
            break
        numbers[num, 0], numbers[num, 1], numbers[num, 2] = edges[edge, TOKEN], num - 1, child
        probs[num, 0], probs[num, 1] = prob, path_prob
        state, num = child, num + 1
    return num


@kernel
@no_type_check
def grow(
    states, edges, state: int, room: int, max_depth: int, min_prob: float, width: int,
    numbers: Int[np.ndarray, "r 3"], probs: Float[np.ndarray, "r 2"],
) -> int:  # fmt: skip
    """Draws the tree of the most probable nodes.

    Ties go to the smaller depth, the later last occurrence, the smaller token.

    Args:
        room: Most nodes.
        max_depth: Most nodes on a path.
        min_prob: Nodes of a smaller path probability are left out.
        width: Most nodes per depth, and most children that are looked at, in the order of their
            list; 0 for all.
        numbers: Filled with tokens, parents and states.
        probs: Filled with probabilities given the parent, and of the path.

    Returns:
        How many nodes there are.
    """
    # Without a width, what is queued behind `room` others is never reached.
    most = (room + 1) * max(width, 1)
    queue, first, stop = np.empty(most + room + 1, dtype=np.int64), 0, 0  # Items, best first.
    items, item_probs = np.empty((len(queue), 3), dtype=np.int64), np.empty((len(queue), 2))
    used = np.zeros(min(max_depth, room) + 1, dtype=np.int64)
    num_items, num, parent, depth, path_prob = 0, 0, -1, 0, 1.0
    while num < room:
        edge, num_seen = states[state, FIRST_EDGE], 0
        while edge >= 0 and depth < max_depth and (num_seen < width or width == 0):
            prob = states[edges[edge, TARGET], COUNT] / states[state, COUNT]
            place = stop
            if prob == 0 or path_prob * prob < min_prob:
                place = first + most
            while first < place <= stop and _is_better(
                states, edges, path_prob * prob, depth + 1, edge, items, item_probs,
                queue[place - 1],
            ):  # fmt: skip
                place -= 1
            if place < first + most:
                item = num_items
                if stop - first == most:
                    stop -= 1
                    item = queue[stop]
                else:
                    num_items += 1
                for behind in range(stop, place, -1):
                    queue[behind] = queue[behind - 1]
                queue[place] = item
                items[item, 0], items[item, 1], items[item, 2] = edge, parent, depth + 1
                item_probs[item, 0], item_probs[item, 1] = prob, path_prob * prob
                stop += 1
            num_seen += 1
            edge = edges[edge, NEXT_EDGE]
        while first < stop and width > 0 and used[items[queue[first], 2]] == width:
            first += 1
        if first == stop:
            break
        item = queue[first]
        first += 1
        edge, parent, depth = items[item, 0], items[item, 1], items[item, 2]
        state, path_prob = edges[edge, TARGET], item_probs[item, 1]
        numbers[num, 0], numbers[num, 1], numbers[num, 2] = edges[edge, TOKEN], parent, state
        probs[num, 0], probs[num, 1] = item_probs[item, 0], path_prob
        used[depth] += 1
        parent, num = num, num + 1
    return num


@kernel
@no_type_check
def _is_better(
    states, edges, prob: float, depth: int, edge: int, items, item_probs, other: int
) -> bool:
    """Whether a node comes before an item of the queue."""
    if prob != item_probs[other, 1]:
        return prob > item_probs[other, 1]
    if depth != items[other, 2]:
        return depth < items[other, 2]
    rival = items[other, 0]
    end, other_end = states[edges[edge, TARGET], LAST_END], states[edges[rival, TARGET], LAST_END]
    if end != other_end:
        return end > other_end
    return edges[edge, TOKEN] < edges[rival, TOKEN]
