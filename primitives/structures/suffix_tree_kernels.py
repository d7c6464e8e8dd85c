"""Compiled steps of the suffix tree: counts of all strings up to a depth, and drafts by them.

`ACTIVE` is the state of the last `ACTIVE_LEN` tokens of the open sequence, at most `depth`; it and
the states along its suffix links hold all suffixes that a new token makes one occurrence of longer
strings of. `OLD_...` is what `LAST` and `ACTIVE` were one token before.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int

from primitives.structures.automaton_kernels import (
    ACTIVE,
    ACTIVE_LEN,
    BEST_EDGE,
    COUNT,
    FIRST_EDGE,
    LAST,
    LAST_END,
    LENGTH,
    LINK,
    NEXT_EDGE,
    OLD_ACTIVE,
    OLD_LAST,
    OLD_LEN,
    TARGET,
    append,
    slot_of,
)
from primitives.structures.draft_kernels import follow, grow
from primitives.structures.kernel import kernel

NUMERIC_SLACK = 1e-6
"""Added to a budget before it is rounded down, as in the authors' code."""


@kernel
@no_type_check
def observe(states, edges, slots, sizes, tokens: Int[np.ndarray, "n"], end: int, depth: int):
    """Appends tokens that stand right before `end`, and counts their suffixes."""
    for place in range(len(tokens)):
        token, token_end = tokens[place], end - len(tokens) + place + 1
        sizes[OLD_LAST] = sizes[LAST]
        append(states, edges, slots, sizes, token, token_end)
        sizes[OLD_ACTIVE], sizes[OLD_LEN] = sizes[ACTIVE], sizes[ACTIVE_LEN]
        sizes[ACTIVE], sizes[ACTIVE_LEN] = shift(
            states, edges, slots, sizes[ACTIVE], sizes[ACTIVE_LEN], token, depth
        )
        count(states, edges, slots, sizes[OLD_ACTIVE], sizes[ACTIVE], token, depth, token_end)


@kernel
@no_type_check
def retract(states, edges, slots, sizes, token: int, depth: int) -> None:
    """Takes back the counts of the last token."""
    count(states, edges, slots, sizes[OLD_ACTIVE], sizes[ACTIVE], token, depth, -1)
    sizes[LAST], sizes[ACTIVE], sizes[ACTIVE_LEN] = (
        sizes[OLD_LAST], sizes[OLD_ACTIVE], sizes[OLD_LEN]
    )  # fmt: skip


@kernel
@no_type_check
def forget(states, edges, slots, tokens: Int[np.ndarray, "n"], depth: int) -> None:
    """Takes back the counts of a sequence."""
    state, length = 0, 0
    for token in tokens:
        before = state
        state, length = shift(states, edges, slots, state, length, token, depth)
        count(states, edges, slots, before, state, token, depth, -1)


@kernel
@no_type_check
def shift(states, edges, slots, state: int, length: int, token: int, depth: int):
    """The state of the last `depth` tokens, or of all, after one more token that is known."""
    state = edges[slots[slot_of(edges, slots, state, token)], TARGET]
    length = min(length + 1, depth)
    while states[states[state, LINK], LENGTH] >= length:
        state = states[state, LINK]
    return state, length


@kernel
@no_type_check
def count(states, edges, slots, before: int, state: int, token: int, depth: int, end: int) -> None:
    """One occurrence more of all suffixes that end at `end`; one less if that is negative.

    `before` is the active state before the token, `state` the one behind it.
    """
    while state > 0:
        states[state, COUNT] += 1 if end >= 0 else -1
        if end >= 0:
            states[state, LAST_END] = end
        state = states[state, LINK]
    while before > 0:
        if states[states[before, LINK], LENGTH] + 1 < depth:
            edge = slots[slot_of(edges, slots, before, token)]
            best = states[before, BEST_EDGE]
            if end < 0:
                if best == edge:
                    states[before, BEST_EDGE] = most_frequent(states, edges, before)
            elif best < 0 or (
                states[edges[edge, TARGET], COUNT] >= states[edges[best, TARGET], COUNT]
            ):
                states[before, BEST_EDGE] = edge
        before = states[before, LINK]


@kernel
@no_type_check
def most_frequent(states, edges, state: int) -> int:
    """The edge that was taken most often, of equals the last one; -1 if none is left."""
    best, most, latest = -1, 0, 0
    edge = states[state, FIRST_EDGE]
    while edge >= 0:
        num, end = states[edges[edge, TARGET], COUNT], states[edges[edge, TARGET], LAST_END]
        if num > most or (num == most and num > 0 and end > latest):
            best, most, latest = edge, num, end
        edge = edges[edge, NEXT_EDGE]
    return best


@kernel
@no_type_check
def match_end(states, edges, slots, tokens: Int[np.ndarray, "n"]) -> tuple[int, int]:
    """State and length of the longest suffix of some tokens, at most all, that still occurs."""
    state, length = 0, 0
    for token in tokens:
        while True:
            edge = slots[slot_of(edges, slots, state, token)]
            if edge >= 0 and states[edges[edge, TARGET], COUNT] > 0:
                state, length = edges[edge, TARGET], length + 1
                break
            if state == 0:
                break
            state = states[state, LINK]
            length = states[state, LENGTH]
    return state, length


@kernel
@no_type_check
def speculate(
    states, edges, state: int, match_len: int, depth: int, num_tokens: int, factor: float,
    offset: float, min_prob: float, is_tree: bool,
) -> tuple[float, int, Int[np.ndarray, "k 3"], Float[np.ndarray, "k 2"]]:  # fmt: skip
    """The draft of the best score over all matches up to the longest one.

    All lengths of one state have the same continuations and differ in their budgets only.
    """
    numbers, probs = np.empty((num_tokens, 3), dtype=np.int64), np.empty((num_tokens, 2))
    best_score, best_len, best_state, best_num = 0.0, 0, 0, 0
    while state > 0 and states[states[state, LINK], LENGTH] >= match_len:
        state = states[state, LINK]
    while state > 0:
        shortest = states[states[state, LINK], LENGTH] + 1
        num_followed = 0
        for length in range(match_len, shortest - 1, -1):
            budget = min(num_tokens, int(length * factor + offset + NUMERIC_SLACK))
            if budget <= best_score:  # No draft of this or a shorter match scores more.
                break
            below = depth - length
            if is_tree:
                num = grow(states, edges, state, budget, below, min_prob, 0, numbers, probs)
            else:
                if length == match_len:
                    most = min(budget, depth - shortest)
                    num_followed = follow(states, edges, state, most, min_prob, numbers, probs)
                num = min(budget, below, num_followed)
            score = probs[:num, 1].sum()
            if score > best_score:
                best_score, best_len, best_state, best_num = score, length, state, num
        match_len = shortest - 1
        if min(num_tokens, int(match_len * factor + offset + NUMERIC_SLACK)) <= best_score:
            break
        state = states[state, LINK]
    if is_tree:
        grow(states, edges, best_state, best_num, depth - best_len, min_prob, 0, numbers, probs)
    else:
        follow(states, edges, best_state, best_num, min_prob, numbers, probs)
    return best_score, best_len, numbers[:best_num].copy(), probs[:best_num].copy()
