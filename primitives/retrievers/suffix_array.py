"""REST: what followed the longest match of the context's end in a large corpus.

The longest suffix of the context (pending included) that occurs in the datastore is found in a
suffix array, and all continuations of its occurrences are counted as a trie. The most frequent
prefixes are proposed with their counts, so that a tree builder that adds up the counts of the
candidates through a node gets REST's own prefix counts.

    score(prefix) = sum over its own prefixes of count / hits

is the expected number of accepted tokens if the hits are the law of the continuation.

Source: He et al. 2023, REST (arXiv 2311.08252), sections 3.2 and 3.3, and the authors' library
DraftRetriever (spans of 16 down to 2 tokens, 5000 hits, continuations of 10 tokens).
Cost: O(log n) comparisons per propose in n tokens, and O(h) per kept prefix of h hits; nothing per
observe. The first `attach` of an installation compiles for seconds. The store is mapped, not read.
Deviations: continuations stop at document ends; of more than `max_hits` hits, evenly spaced ones
are taken, where the original takes the lexicographically first; ties break by the order of hits,
not by chance (so a store in several chunks may break them otherwise than the same store in one);
no match means no draft, where the original drafts a dummy token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from primitives.fields import check_ngrams, check_range
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.count_trie import CountTrie
from primitives.structures.suffix_array import TokenStore
from primitives.types import MAX_DRAFT_NODES, Candidate, Context

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
        check_ngrams(self)
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)
        check_range(self, "max_hits", least=1, most=MAX_HITS)

    def attach(self, store: TokenStore) -> None:
        """Sets the store to search; it may be shared.

        Compiles what `propose` runs on this kind of store, so that no step has to.
        """
        text = [0, 0]
        context = Context(ids_with_pending=np.array(text), num_prompt_tokens=1, vocab_size=1)
        stand_in = TokenStore.from_documents([[text]], store.vocab_size)
        self._candidates(stand_in, context, limit=1, min_len=1)
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
        return self._candidates(self._store, context, limit=limit, min_len=self.min_ngram)

    def _candidates(
        self, store: TokenStore, context: Context, *, limit: int, min_len: int
    ) -> list[Candidate]:
        match = store.longest_match(
            context.ids_with_pending, min_len=min_len, max_len=self.max_ngram
        )
        if limit < 1 or match.match_len == 0:
            return []
        hits = store.ends(match, self.max_hits)
        rows = [chunk.behind(ends, self.num_tokens) for chunk, _, ends in hits]
        positions = _joined([ends + offset if offset else ends for _, offset, ends in hits])
        trie = CountTrie(_joined(rows), end=store.vocab_size, limit=limit)
        return [
            Candidate(
                token_ids=token_ids,
                score=score,
                match_len=match.match_len,
                recency=position,
                source=self.name,
                count=count,
            )
            for token_ids, score, position, count in trie.leaves(positions, context.pending_id)
        ]


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Most stores are one chunk: nothing is copied then."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
