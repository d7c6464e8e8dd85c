"""Suffix automaton: the longest earlier occurrence of a text's end, while the text grows.

A state stands for all strings that occur at the same places; each of them is a suffix of the
longest one, and the link leads to the state of the longest suffix that occurs at more places.

    text a b b a    states  1 {a}  2 {ab}  3 {abb, bb}  5 {abba, bba, ba}  4 {b}   0 {""}
                    links   1 -> 0   2 -> 4 -> 0   3 -> 4   5 -> 1

The arrays are `states` (per state: length of its longest string, link, first edge, where its first
occurrence ends, occurrences, where the last one ends, most frequent edge), `edges` (source, token,
target, next edge of the source), the hash table `slots` of the edges, `sizes`, and `text`, which
holds the sequences one after the other, each followed by a separator that is no token.

Source: Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text"; the online
construction for several sequences as in Mohri, Moreno and Weinstein 2009, "General suffix automaton
construction algorithm and space bounds".
Cost: amortised O(1) per token to extend or to track; at most 2 n states and 3 n edges for n tokens,
about 140 bytes per token (up to twice that after growth).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Integer

from primitives.structures import automaton_kernels as kernels
from primitives.structures.automaton_kernels import (
    COUNT,
    FIRST_EDGE,
    FIRST_END,
    LAST,
    LENGTH,
    LINK,
    NEXT_EDGE,
    NUM_EDGES,
    NUM_STATES,
    TARGET,
    TOKEN,
)

SEPARATOR = -1
MAX_TOKENS = 2**28
"""Edges are numbered with 32 bits, and there may be three per token."""

Ids = Sequence[int] | Integer[np.ndarray, "_"]


class SuffixAutomaton:
    """All substrings of the sequences so far.

    Args:
        num_tokens: How many tokens to make room for, at most 2^28; more may come.

    Raises:
        ValueError: If it is more than that.
    """

    def __init__(self, num_tokens: int = 0) -> None:
        self._clear(max(num_tokens, 64))

    @property
    def text(self) -> Int[np.ndarray, "n"]:
        """The sequences and separators; a view."""
        return self._text[: self._num_text]

    @property
    def num_states(self) -> int:
        """States, the one of the empty string included."""
        return int(self._sizes[NUM_STATES])

    def extend(self, token_ids: Ids) -> None:
        """Appends tokens to the open sequence.

        Raises:
            ValueError: If there would be more than 2^28 tokens.
        """
        tokens = self._append_text(token_ids)  # Before: it may make room in other arrays.
        kernels.append_all(*self._arrays, tokens, self._num_text)

    def end_sequence(self) -> None:
        """Closes the open sequence: no string goes on beyond its end."""
        self.extend([SEPARATOR])

    def track(self, match: tuple[int, int], token_ids: Ids) -> tuple[int, int]:
        """Moves a match on.

        Args:
            match: State and length of the longest suffix of some text that occurs here; (0, 0) for
                the empty one.
            token_ids: What the text is continued with.

        Returns:
            State and length of the longest suffix of the longer text.
        """
        ids = np.array(token_ids, dtype=np.int32)
        state, length = kernels.track(self._states, self._edges, self._slots, *match, ids)
        return int(state), int(length)

    def match_of_end(self) -> tuple[int, int]:
        """State and length of the longest suffix of the text that occurs before its end, too."""
        last = self._sizes[LAST]
        return self.link(int(last)) if last > 0 else (0, 0)

    def link(self, state: int) -> tuple[int, int]:
        """The longest suffix of a state's strings that occurs at more places, and its length."""
        link = int(self._states[state, LINK])
        return link, int(self._states[link, LENGTH])

    def first_end(self, state: int) -> int:
        """The position in the text behind the first occurrence of a state's strings."""
        return int(self._states[state, FIRST_END])

    def count(self, state: int) -> int:
        """Occurrences of a state's strings, where somebody counts them."""
        return int(self._states[state, COUNT])

    def check_integrity(self) -> None:
        """Raises an AssertionError unless the automaton is that of its text; O(n^2) and more."""
        num, sizes = self.num_states, self._sizes
        assert num <= max(2 * self._num_text, 1)
        assert sizes[NUM_EDGES] <= 3 * self._num_text
        seen = 0
        for state in range(num):
            children = self._children(state)
            assert len(dict(children)) == len(children), f"state {state} repeats a token"
            seen += len(children)
            for token, target in children:
                assert self.track((state, 0), [token]) == (target, 1), "the table lost an edge"
                assert self._states[target, LENGTH] > self._states[state, LENGTH]
        assert seen == sizes[NUM_EDGES], "an edge is in no list"
        for state in range(1, num):
            self._check_strings(state)
        for sequence in self._sequences():
            match: tuple[int, int] = (0, 0)
            for place, token in enumerate(sequence):
                match = self.track(match, [token])
                assert match[1] == place + 1, "a prefix of a sequence is missing"

    def _check_strings(self, state: int) -> None:
        """The longest and the shortest string lead to the state, one token less to its link."""
        end, length = self.first_end(state), int(self._states[state, LENGTH])
        link, shorter = self.link(state)
        assert shorter < length
        string = self.text[end - length : end]
        assert self.track((0, 0), string) == (state, length)
        assert self.track((0, 0), string[length - shorter - 1 :]) == (state, shorter + 1)
        assert self.track((0, 0), string[length - shorter :]) == (link, shorter)

    def _sequences(self) -> list[list[int]]:
        sequences: list[list[int]] = [[]]
        for token in self.text.tolist():
            if token == SEPARATOR:
                sequences.append([])
            else:
                sequences[-1].append(token)
        return sequences

    def _children(self, state: int) -> list[tuple[int, int]]:
        """Token and target of each edge, in the order of the list."""
        children, edge = [], self._states[state, FIRST_EDGE]
        while edge >= 0:
            children.append((int(self._edges[edge, TOKEN]), int(self._edges[edge, TARGET])))
            edge = self._edges[edge, NEXT_EDGE]
        return children

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self._states, self._edges, self._slots, self._sizes

    def _clear(self, num_tokens: int) -> None:
        """Starts anew, with room for some tokens.

        Raises:
            ValueError: If that is more than 2^28.
        """
        _check_size(num_tokens)
        self._num_text = 0
        self._text = np.empty(num_tokens, dtype=np.int32)
        self._states = np.zeros((2 * num_tokens + 2, 8), dtype=np.int32)
        self._states[0] = -1
        self._states[0, [LENGTH, FIRST_END, COUNT]] = 0
        self._edges = np.empty((3 * num_tokens + 2, 4), dtype=np.int32)
        self._slots = _empty_slots(len(self._edges))
        self._sizes = np.zeros(8, dtype=np.int64)
        self._sizes[NUM_STATES] = 1

    def _append_text(self, token_ids: Ids) -> Int[np.ndarray, "k"]:
        """Makes room for tokens and writes them behind the text; returns the view of them."""
        start, stop = self._num_text, self._num_text + len(token_ids)
        if stop > len(self._text):
            _check_size(stop)
            num_tokens = min(max(stop, 2 * len(self._text)), MAX_TOKENS)
            self._text = _grown(self._text, num_tokens)
            self._states = _grown(self._states, 2 * num_tokens + 2)
            self._edges = _grown(self._edges, 3 * num_tokens + 2)
            self._slots = _empty_slots(len(self._edges))
            kernels.refill(self._edges, self._slots, int(self._sizes[NUM_EDGES]))
        self._text[start:stop] = token_ids
        self._num_text = stop
        return self._text[start:stop]


def _check_size(num_tokens: int) -> None:
    if num_tokens > MAX_TOKENS:
        raise ValueError(f"a suffix automaton holds up to {MAX_TOKENS} tokens, got {num_tokens}")


def _empty_slots(num_edges: int) -> Int[np.ndarray, "h"]:
    """At least two slots for each edge."""
    return np.full(1 << (2 * num_edges).bit_length(), -1, dtype=np.int32)


def _grown(array: Int[np.ndarray, "n *rest"], num: int) -> Int[np.ndarray, "m *rest"]:
    grown = np.zeros((num, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown
