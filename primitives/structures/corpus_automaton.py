"""A suffix automaton over a corpus that does not change, with counts.

Cost: O(n) to build for n tokens, once; O(1) amortised per token to track; O(w log w) per draft node
for a width of w.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from primitives.structures.automaton_kernels import (
    COUNT,
    FIRST_EDGE,
    FIRST_END,
    LENGTH,
    NEXT_EDGE,
    NUM_EDGES,
    SOURCE,
    TARGET,
    TOKEN,
    count_occurrences,
)
from primitives.structures.draft_kernels import grow
from primitives.structures.draft_nodes import DraftNodes
from primitives.structures.suffix_array import TokenStore
from primitives.structures.suffix_automaton import SEPARATOR, Ids, SuffixAutomaton


class CorpusAutomaton(SuffixAutomaton):
    """Immutable, so that copies share the arrays.

    Args:
        documents: Each a sequence of ids.
    """

    def __init__(self, documents: Iterable[Ids]) -> None:
        texts = [np.append(np.asarray(ids, dtype=np.int32), SEPARATOR) for ids in documents]
        super().__init__(sum(map(len, texts)))
        for text in texts:
            self.extend(text)
        longest_first = np.argsort(-self._states[: self.num_states, LENGTH], kind="stable")
        count_occurrences(self._states, self._edges, self._slots, self.text, longest_first)
        self._rank_edges()

    @classmethod
    def from_store(cls, store: TokenStore) -> CorpusAutomaton:
        """All documents of a store."""
        return cls(
            document
            for chunk in store.chunks
            for document in np.split(chunk.tokens, np.flatnonzero(chunk.tokens == chunk.separator))
            for document in [document[document != chunk.separator]]
            if len(document)
        )

    def draft(self, match: tuple[int, int], num_nodes: int, width: int) -> DraftNodes:
        """The most probable continuations of a match as a tree.

        Args:
            match: State and length, as `track` gives them.
            num_nodes: Most nodes.
            width: Most nodes per depth and children per node, the most frequent ones.
        """
        numbers, probs = np.empty((num_nodes, 3), dtype=np.int64), np.empty((num_nodes, 2))
        num = grow(
            self._states, self._edges, match[0], num_nodes, num_nodes, 0.0, width, numbers, probs
        )
        token_ids, parents, states = numbers[:num].T
        return DraftNodes(
            score=float(probs[:num, 1].sum()),
            match_len=match[1],
            token_ids=token_ids,
            parents=parents,
            probs=probs[:num],
            counts=self._states[states, COUNT],
            ends=self._states[states, FIRST_END],
        )

    def check_integrity(self) -> None:
        """Raises an AssertionError unless states, edges and counts are those of the documents."""
        super().check_integrity()
        text = self.text.tolist()
        for state in range(1, self.num_states):
            end, length = self.first_end(state), self.link(state)[1] + 1
            string = text[end - length : end]
            ends = [e for e in range(length, len(text) + 1) if text[e - length : e] == string]
            assert self.count(state) == len(ends), f"the count of {string} is wrong"
            assert end == ends[0]
            counts = [self.count(target) for _, target in self._children(state)]
            assert counts == sorted(counts, reverse=True), "edges are not sorted by count"

    def _rank_edges(self) -> None:
        """Sorts the list of each state's edges: frequent ones first, then by token."""
        edges = self._edges[: self._sizes[NUM_EDGES]]
        sources, counts = edges[:, SOURCE], self._states[edges[:, TARGET], COUNT]
        order = np.lexsort((edges[:, TOKEN], -counts, sources))
        is_first = np.diff(sources[order], prepend=-1) != 0
        self._states[sources[order[is_first]], FIRST_EDGE] = order[is_first]
        following = np.append(np.where(is_first, -1, order)[1:], -1)
        edges[order, NEXT_EDGE] = following[: len(order)]

    def __deepcopy__(self, memo: dict[int, Any]) -> CorpusAutomaton:
        return self
