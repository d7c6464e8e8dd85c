"""Suffix tree with counts: what followed the strings of up to some length, and how often.

It counts every string of up to `max_depth` tokens of the sequences it holds, and forgets the oldest
sequence on demand. A draft starts at a match of the context's end and follows the counts.

    sequences a b c, a b d, a b c    behind a b: c twice, d once
    draft     c (2/3)                its score, 2/3, is the expected number of accepted tokens

Strings that occur at the same places share one node, as the path-compressed tree has it; here they
are the states of a suffix automaton, which share nodes between the subtrees of a string and of its
suffixes, too. So the suffixes of the context are one walk along links, not a search each.

Source: SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975), and the authors' code
(ArcticInference, csrc/suffix_decoding) for counts, budgets and scores.
Cost: O(max_depth) per token at most, to add or to forget, and the edges of states whose most
frequent edge is forgotten; a draft takes O(matched states * draft nodes).
"""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
from jaxtyping import Int

from primitives.structures import suffix_tree_kernels as kernels
from primitives.structures.automaton_kernels import (
    ACTIVE,
    ACTIVE_LEN,
    BEST_EDGE,
    COUNT,
    LAST,
    LAST_END,
    TARGET,
)
from primitives.structures.draft_nodes import DraftNodes
from primitives.structures.suffix_automaton import SEPARATOR, Ids, SuffixAutomaton


class SuffixTree(SuffixAutomaton):
    """Counts of strings in sequences, oldest first; the last one is open.

    Args:
        max_depth: Longest string that is counted, in tokens, at least 1.
        num_tokens: How many tokens to make room for; more may come.
    """

    def __init__(self, max_depth: int, num_tokens: int = 0) -> None:
        super().__init__(num_tokens)
        self.max_depth = max_depth
        self._starts: deque[int] = deque([0])

    @property
    def num_sequences(self) -> int:
        """Sequences that are held, the open one included, even if it is empty."""
        return len(self._starts)

    def extend(self, token_ids: Ids) -> None:
        """Appends tokens to the open sequence."""
        tokens = self._append_text(token_ids)
        kernels.observe(*self._arrays, tokens, self._num_text, self.max_depth)

    def retract(self) -> None:
        """Takes back the last token of the open sequence; once per token that was appended."""
        self._num_text -= 1
        kernels.retract(*self._arrays, int(self._text[self._num_text]), self.max_depth)

    def end_sequence(self) -> None:
        """Closes the open sequence and opens another one."""
        self._append_text([SEPARATOR])
        self._starts.append(self._num_text)
        self._sizes[[LAST, ACTIVE, ACTIVE_LEN]] = 0

    def forget_oldest(self) -> None:
        """Forgets the oldest sequence, which must not be the open one."""
        start = self._starts.popleft()
        tokens = self._text[start : self._starts[0] - 1]
        kernels.forget(self._states, self._edges, self._slots, tokens, self.max_depth)
        # States stay when their counts are gone; so all is built anew before they are most.
        if 2 * self._starts[0] > self._num_text:
            self._rebuild()

    def longest_match(self, context: Ids) -> tuple[int, int]:
        """State and length of the longest suffix of a context that occurs in some sequence."""
        ids = np.array(context, dtype=np.int32)
        state, length = kernels.match_end(self._states, self._edges, self._slots, ids)
        return int(state), int(length)

    def open_match(self) -> tuple[int, int]:
        """The same for the open sequence as a context, which ends in itself: one token less."""
        return int(self._sizes[ACTIVE]), max(int(self._sizes[ACTIVE_LEN]) - 1, 0)

    def draft(
        self,
        match: tuple[int, int],
        *,
        num_tokens: int,
        factor: float,
        offset: float,
        min_prob: float,
        is_tree: bool,
    ) -> DraftNodes:
        """The draft of the best score over this match and all shorter ones; the longest of equals.

        Args:
            match: State and length of the longest match that may be used.
            num_tokens: Most nodes.
            factor: Most nodes per matched token ...
            offset: ... and this many more.
            min_prob: Nodes with a smaller path probability are left out.
            is_tree: Whether all children are drawn, not just the most frequent one.
        """
        score, match_len, numbers, probs = kernels.speculate(
            self._states, self._edges, *match, self.max_depth, num_tokens, factor, offset,
            min_prob, is_tree,
        )  # fmt: skip
        token_ids, parents, states = numbers.T
        return DraftNodes(
            score=score,
            match_len=match_len,
            token_ids=token_ids,
            parents=parents,
            probs=probs,
            counts=self._states[states, COUNT],
            ends=self._states[states, LAST_END],
        )

    def check_integrity(self) -> None:
        """Raises an AssertionError unless all counts are those of the sequences."""
        visits, most = self._visits()
        counts, best_edges = self._states[:, COUNT].tolist(), self._states[:, BEST_EDGE].tolist()
        for (state, length), num in visits.items():
            assert counts[state] == num, f"the count of state {state} is wrong"
            if length < self.max_depth:
                edge = best_edges[state]
                best = counts[self._edges[edge, TARGET]] if edge >= 0 else 0
                is_best = best == most.get((state, length), 0)
                assert is_best, f"the most frequent edge of state {state} is another one"
        # The count of a state whose strings are all too long is left as it was.
        is_counted = [self.link(state)[1] < self.max_depth for state in range(1, self.num_states)]
        num_counted = int((self._states[1 : self.num_states, COUNT] > 0)[is_counted].sum())
        known = {state for state, _ in visits}
        assert num_counted == len(known), "a string is counted that does not occur"

    def _visits(self) -> tuple[Counter[tuple[int, int]], dict[tuple[int, int], int]]:
        """Occurrences of each string, and of the most frequent string that is one token longer.

        A state holds one string of each length, so a pair of both stands for a string.
        """
        edges = {
            (state, token): target
            for state in range(self.num_states)
            for token, target in self._children(state)
        }
        visits: Counter[tuple[int, int]] = Counter()
        shorter: dict[tuple[int, int], tuple[int, int]] = {}
        for sequence in self._sequences_held():
            for start in range(len(sequence)):
                string = (0, 0)
                for token in sequence[start : start + self.max_depth]:
                    assert (string[0], token) in edges, f"a string that ends with {token} is lost"
                    longer = edges[string[0], token], string[1] + 1
                    visits[longer] += 1
                    shorter[longer] = string
                    string = longer
        most: dict[tuple[int, int], int] = {}
        for longer, string in shorter.items():
            most[string] = max(most.get(string, 0), visits[longer])
        return visits, most

    def _sequences_held(self) -> list[list[int]]:
        stops = [*(start - 1 for start in list(self._starts)[1:]), self._num_text]
        return [
            self._text[start:stop].tolist() for start, stop in zip(self._starts, stops, strict=True)
        ]

    def _rebuild(self) -> None:
        first: Int[np.ndarray, "n"] = self._text[self._starts[0] : self._num_text].copy()
        sequences = self._sequences_held()
        self._clear(max(2 * len(first), 64))
        self._starts = deque([0])
        for number, ids in enumerate(sequences):
            if number:
                self.end_sequence()
            self.extend(ids)
