"""REST: what followed the longest match of the context's end in a large corpus.

The longest suffix of the context (pending included) that occurs in the datastore is found in a
suffix array, and all continuations of its occurrences are counted as a trie. The most frequent
prefixes are proposed with their counts, so that a tree builder that adds up the counts of the
candidates through a node gets REST's own prefix counts.

    score(prefix) = sum over its own prefixes of count / hits

is the expected number of accepted tokens if the hits are the law of the continuation.

Source: He et al. 2023, REST (arXiv 2311.08252), sections 3.2 and 3.3, and the authors' library
DraftRetriever (spans of 16 down to 2 tokens, 5000 hits, continuations of 10 tokens).
Cost: O(log n) comparisons per propose in n tokens, and O(h log h) to count h hits; nothing per
observe. The store is mapped, not loaded.
Deviations: continuations stop at document ends; of more than `max_hits` hits, evenly spaced ones
are taken, where the original takes the lexicographically first; ties break by the order of hits,
not by chance (so a store in several chunks may break them otherwise than the same store in one);
no match means no draft, where the original drafts a dummy token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int

from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.count_trie import CountTrie
from primitives.structures.suffix_array import TokenStore
from primitives.types import Candidate, Context

MAX_HITS = 2**20


@RETRIEVERS.register("suffix_array")
@dataclass(kw_only=True)
class SuffixArrayRetriever(Retriever):
    """Longest match in a token store, continuations summarised by their frequent prefixes.

    Attributes:
        max_ngram: Longest match that is looked for, in tokens, at least `min_ngram`.
        min_ngram: Shortest match that counts, in tokens, at least 1.
        num_tokens: Longest continuation, in tokens, in [1, 1024].
        max_hits: Most occurrences that are counted, in [1, 2^20].
    """

    is_exact = True
    datastore = "tokens"

    max_ngram: int = 16
    min_ngram: int = 2
    num_tokens: int = 10
    max_hits: int = 5000
    _store: TokenStore | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.min_ngram < 1:
            raise ValueError(f"min_ngram must be ≥ 1, got {self.min_ngram}")
        if self.max_ngram < self.min_ngram:
            raise ValueError(
                f"max_ngram must be ≥ min_ngram ({self.min_ngram}), got {self.max_ngram}"
            )
        if not 1 <= self.num_tokens <= 1024:
            raise ValueError(f"num_tokens must be in [1, 1024], got {self.num_tokens}")
        if not 1 <= self.max_hits <= MAX_HITS:
            raise ValueError(f"max_hits must be in [1, {MAX_HITS}], got {self.max_hits}")

    def attach(self, store: TokenStore) -> None:
        """Sets the store to search; it may be shared."""
        self._store = store

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """The most frequent prefixes of the continuations, as the candidates that hold them all.

        Returns:
            Prefixes that some continuation ends at or leaves the kept ones behind; `count` is the
            number of those continuations.

        Raises:
            RuntimeError: If no store is attached.
        """
        if self._store is None:
            raise RuntimeError("retriever 'suffix_array' searches a token store: attach one first")
        match = self._store.longest_match(
            context.ids_with_pending, min_len=self.min_ngram, max_len=self.max_ngram
        )
        if match.match_len == 0:
            return []
        hits = self._store.ends(match, self.max_hits)
        rows = [chunk.behind(ends, self.num_tokens) for chunk, _, ends in hits]
        trie = CountTrie(np.concatenate(rows), end=self._store.vocab_size, limit=limit)
        positions = np.concatenate([ends + offset for _, offset, ends in hits])
        leaves = _leaves(trie, positions)
        return [
            Candidate(
                token_ids=(context.pending_id, *token_ids),
                score=-negative_score,
                match_len=match.match_len,
                recency=-negative_recency,
                source=self.name,
                count=count,
            )
            for negative_score, negative_recency, token_ids, count in sorted(leaves)
        ]


def _leaves(
    trie: CountTrie, positions: Int[np.ndarray, "h"]
) -> list[tuple[float, int, tuple[int, ...], int]]:
    """(-score, -recency, tokens, count) of the prefixes that are not used up by longer ones."""
    num_hits = len(positions)
    scores = [0.0] * (len(trie.prefixes) + 1)  # Index -1 is the empty prefix.
    left = [*trie.counts, num_hits]
    for index, (count, parent) in enumerate(zip(trie.counts, trie.parents, strict=True)):
        scores[index] = scores[parent] + count / num_hits
        left[parent] -= count
    recencies: list[int] = positions[trie.firsts].tolist()
    return [
        (-scores[index], -recencies[index], prefix, left[index])
        for index, prefix in enumerate(trie.prefixes)
        if left[index]
    ]
