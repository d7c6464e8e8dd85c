"""CREST: precomputed trees of what followed the most frequent short n-grams of a corpus.

The longest n-gram that ends the context (pending included) and is in the datastore names a tree,
made beforehand as REST makes one at every step. Its paths are proposed with their counts.

    score(prefix) = sum over its own prefixes of count / occurrences
    token_probs   = count / count of the parent

Source: Ho, Park and Wang 2024, CREST (arXiv 2408.04678): n-grams mapped to token trees, longest
first. What a tree holds is that of REST (He et al. 2023, arXiv 2311.08252, section 3.3).
Cost: O(max_ngram * log m) comparisons for m n-grams and O(limit * depth) per propose; nothing per
observe. The store is mapped, not read.
Deviations: lengths of n-grams, the number of nodes per tree and the search by a sorted hash are
ours: the paper is known to us by its abstract and at second hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from primitives.fields import check_ngrams
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.ngram_trees import ROOT, NgramTrees, Tree
from primitives.types import Candidate, Context


@RETRIEVERS.register("ngram_trees")
@dataclass(kw_only=True)
class NgramTreesRetriever(Retriever):
    """The tree of the longest stored n-gram that ends the context.

    Attributes:
        max_ngram: Longest n-gram that is looked up, in tokens, at least `min_ngram`; the datastore
            decides which there are.
        min_ngram: Shortest one, in tokens, at least 1.
    """

    datastore = "ngram_trees"

    max_ngram: int = 16
    min_ngram: int = 1
    _store: NgramTrees | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_ngrams(self)

    def attach(self, store: NgramTrees) -> None:
        """Sets the store to search; it may be shared."""
        self._store = store

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """The paths of the best `limit` nodes, as the candidates that hold them all.

        Returns:
            Paths that some continuation ends at or leaves the kept ones behind; `count` is the
            number of those continuations.

        Raises:
            RuntimeError: If no store is attached.
        """
        if self._store is None:
            raise RuntimeError("retriever 'ngram_trees' searches n-gram trees: attach a store")
        tree = self._store.longest_match(
            context.ids_with_pending, min_len=self.min_ngram, max_len=self.max_ngram
        )
        found = self._leaves(tree, context, limit)
        return sorted(found, key=lambda c: (-c.score, c.token_ids))

    def _leaves(self, tree: Tree, context: Context, limit: int) -> list[Candidate]:
        """In the order of the tree's nodes; what stands behind an EOS is left out."""
        paths: list[Candidate] = []
        root = Candidate(token_ids=(context.pending_id,), token_probs=(1.0,), count=tree.num_hits)
        left = list(tree.counts[:limit])
        for node, count in enumerate(tree.counts[:limit]):
            parent = tree.parents[node]
            above = root if parent == ROOT else paths[parent]
            token_ids = (*above.token_ids, tree.token_ids[node])
            if not context.eos_ids.isdisjoint(above.token_ids[1:]):
                left[node] = 0
            elif parent != ROOT:
                left[parent] -= count
            paths.append(
                Candidate(
                    token_ids=token_ids,
                    score=above.score + count / tree.num_hits,
                    match_len=tree.match_len,
                    source=self.name,
                    count=count,
                    token_probs=(*above.token_probs, count / above.count),
                )
            )
        return [replace(path, count=num) for path, num in zip(paths, left, strict=True) if num > 0]
