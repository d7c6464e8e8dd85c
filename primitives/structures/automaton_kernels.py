"""Compiled steps of the suffix automaton; its arrays are described in `suffix_automaton`.

An edge is found by its state and token in a table of open addresses with a free slot for every
used one; the edges of a state are also a linked list, so that a state can be cloned.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Int

from primitives.structures.kernel import kernel

LENGTH, LINK, FIRST_EDGE, FIRST_END, COUNT, LAST_END, BEST_EDGE = range(7)
"""Columns of `states`."""

SOURCE, TOKEN, TARGET, NEXT_EDGE = range(4)
"""Columns of `edges`."""

NUM_STATES, NUM_EDGES, LAST, ACTIVE, ACTIVE_LEN, OLD_LAST, OLD_ACTIVE, OLD_LEN = range(8)
"""Entries of `sizes`; `suffix_tree_kernels` says what the last five are for."""


@kernel
@no_type_check
def slot_of(edges: Int[np.ndarray, "e 4"], slots: Int[np.ndarray, "h"], state: int, token: int):
    """Where an edge is in the table, or the free slot where it belongs."""
    key = np.int64(state) * 0x1E3779B97F4A7C15 + np.int64(token) * 0x42B2AE3D27D4EB4F
    slot = (key ^ (key >> 32)) & (len(slots) - 1)
    while True:
        edge = slots[slot]
        if edge < 0 or (edges[edge, SOURCE] == state and edges[edge, TOKEN] == token):
            return slot
        slot = (slot + 1) & (len(slots) - 1)


@kernel
@no_type_check
def refill(edges: Int[np.ndarray, "e 4"], slots: Int[np.ndarray, "h"], num_edges: int) -> None:
    """Enters all edges into an empty table."""
    for edge in range(num_edges):
        slots[slot_of(edges, slots, edges[edge, SOURCE], edges[edge, TOKEN])] = edge


@kernel
@no_type_check
def add_edge(states, edges, slots, sizes, source: int, token: int, target: int) -> int:
    """A new edge, first in the list of its state."""
    edge = sizes[NUM_EDGES]
    sizes[NUM_EDGES] += 1
    slots[slot_of(edges, slots, source, token)] = edge
    edges[edge, SOURCE], edges[edge, TOKEN], edges[edge, TARGET] = source, token, target
    edges[edge, NEXT_EDGE] = states[source, FIRST_EDGE]
    states[source, FIRST_EDGE] = edge
    return edge


@kernel
@no_type_check
def split(states, edges, slots, sizes, state: int, edge: int) -> int:
    """Gives the strings that `state` and its suffixes reach by an edge's token their own state."""
    old, token = edges[edge, TARGET], edges[edge, TOKEN]
    clone = sizes[NUM_STATES]
    sizes[NUM_STATES] += 1
    states[clone] = states[old]
    states[clone, LENGTH], states[clone, FIRST_EDGE] = states[state, LENGTH] + 1, -1
    copied = states[old, FIRST_EDGE]
    while copied >= 0:
        copy = add_edge(
            states, edges, slots, sizes, clone, edges[copied, TOKEN], edges[copied, TARGET]
        )
        if copied == states[old, BEST_EDGE]:
            states[clone, BEST_EDGE] = copy
        copied = edges[copied, NEXT_EDGE]
    states[old, LINK] = clone
    while state >= 0:
        edge = slots[slot_of(edges, slots, state, token)]
        if edges[edge, TARGET] != old:
            break
        edges[edge, TARGET] = clone
        state = states[state, LINK]
    if sizes[ACTIVE] == old and sizes[ACTIVE_LEN] <= states[clone, LENGTH]:
        sizes[ACTIVE] = clone
    return clone


@kernel
@no_type_check
def append(states, edges, slots, sizes, token: int, end: int) -> None:
    """Adds all suffixes that end with one more token, which stands right before `end`."""
    state = sizes[LAST]
    edge = slots[slot_of(edges, slots, state, token)]
    if edge >= 0:  # An earlier sequence starts like this one.
        target = edges[edge, TARGET]
        if states[target, LENGTH] != states[state, LENGTH] + 1:
            target = split(states, edges, slots, sizes, state, edge)
        sizes[LAST] = target
        return
    new = sizes[NUM_STATES]
    sizes[NUM_STATES] += 1
    states[new, LENGTH], states[new, LINK] = states[state, LENGTH] + 1, 0
    states[new, FIRST_EDGE], states[new, BEST_EDGE], states[new, FIRST_END] = -1, -1, end
    while state >= 0 and edge < 0:
        add_edge(states, edges, slots, sizes, state, token, new)
        state = states[state, LINK]
        if state >= 0:
            edge = slots[slot_of(edges, slots, state, token)]
    if edge >= 0:
        target = edges[edge, TARGET]
        if states[target, LENGTH] != states[state, LENGTH] + 1:
            target = split(states, edges, slots, sizes, state, edge)
        states[new, LINK] = target
    sizes[LAST] = new


@kernel
@no_type_check
def append_all(states, edges, slots, sizes, tokens: Int[np.ndarray, "n"], end: int) -> None:
    """Appends tokens that stand right before `end`; a negative one ends a sequence."""
    for place in range(len(tokens)):
        if tokens[place] < 0:
            sizes[LAST] = 0
        else:
            append(states, edges, slots, sizes, tokens[place], end - len(tokens) + place + 1)


@kernel
@no_type_check
def track(
    states, edges, slots, state: int, length: int, tokens: Int[np.ndarray, "n"]
) -> tuple[int, int]:
    """Moves the longest match of a text's end on by some tokens."""
    for token in tokens:
        edge = slots[slot_of(edges, slots, state, token)]
        while edge < 0 and state > 0:
            state = states[state, LINK]
            length = states[state, LENGTH]
            edge = slots[slot_of(edges, slots, state, token)]
        if edge >= 0:
            state, length = edges[edge, TARGET], length + 1
    return state, length


@kernel
@no_type_check
def count_occurrences(
    states, edges, slots, tokens: Int[np.ndarray, "n"], longest_first: Int[np.ndarray, "m"]
) -> None:
    """Sets `COUNT` of every state to the occurrences of its strings in all sequences."""
    state = 0
    for token in tokens:
        if token < 0:
            state = 0
        else:
            state = edges[slots[slot_of(edges, slots, state, token)], TARGET]
            states[state, COUNT] += 1
    # Where a state's strings occur, their suffixes do.
    for state in longest_first:
        if state > 0:
            states[states[state, LINK], COUNT] += states[state, COUNT]
