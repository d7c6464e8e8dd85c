"""N-Grammys: n-grams of the context, then bigrams of the model, each continued by bigrams.

Rows are filled first with what followed earlier occurrences of the context's last tokens, then with
the model's most probable successors of pending without the context, each extended by the best
successor of its last token.

Source: Stewart et al. 2024, N-Grammys (arXiv 2411.03786): context n-grams, the (extended) bigram
of the model, and the mixed strategy.
Cost: O(s) vectorised comparisons, those of the hits, and O(limit * num_tokens) per propose; nothing
per observe. The table is made once per model by a forward of every single token.
Deviations: rows share a draft tree instead of a batch. Longer matches come first, of one length
the more frequent continuation, then the more recent one; the paper's orders are known to us at
second hand. Its unigrams, from the embeddings, are not built. What the model reads before a token
of the table is the datastore's matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from primitives.fields import check_ngrams, check_range
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.bigrams import BigramTable
from primitives.structures.ngram_lookup import ngram_matches
from primitives.types import MAX_DRAFT_NODES, Candidate, Context


@RETRIEVERS.register("bigram")
@dataclass(kw_only=True)
class Bigram(Retriever):
    """Matches in the text itself before successors of pending from a table.

    Attributes:
        num_tokens: Draft tokens of a row, in [1, 1024]; a match may have fewer behind it.
        use_context: Whether the text is searched; without, all rows are from the table.
        max_ngram: Longest n that is looked up in the text, in tokens, at least `min_ngram`.
        min_ngram: Shortest n, in tokens, at least 1.
    """

    datastore = "bigrams"

    num_tokens: int = 10
    use_context: bool = True
    max_ngram: int = 3
    min_ngram: int = 1
    _table: BigramTable | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_ngrams(self)
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)

    def attach(self, store: BigramTable) -> None:
        """Sets the table; it may be shared."""
        self._table = store

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Distinct rows: matches of score n + share of the matches, then bigrams of score p.

        Raises:
            RuntimeError: If no table is attached.
        """
        if self._table is None:
            raise RuntimeError("retriever 'bigram' needs a table of bigrams: attach one")
        rows: dict[tuple[int, ...], Candidate] = {}
        for candidate in self._rows(self._table, context, limit):
            if len(rows) == limit:
                break
            rows.setdefault(candidate.token_ids, candidate)
        return list(rows.values())

    def _rows(self, table: BigramTable, context: Context, limit: int) -> Iterator[Candidate]:
        if self.use_context:
            yield from self._matches(context)
        yield from self._successors(table, context, limit)

    def _matches(self, context: Context) -> Iterator[Candidate]:
        """What followed earlier occurrences of the last tokens."""
        ids, pending_id = context.ids_with_pending, context.pending_id
        found = ngram_matches(ids, ids, min_ngram=self.min_ngram, max_ngram=self.max_ngram)
        for ngram, ends in found:
            latest: dict[tuple[int, ...], int] = {}
            counts: Counter[tuple[int, ...]] = Counter()
            for end in ends.tolist():
                draft = context.until_eos(tuple(ids[end : end + self.num_tokens].tolist()))
                latest[draft], counts[draft] = end, counts[draft] + 1
            for draft in sorted(latest, key=lambda d: (-counts[d], -latest[d])):
                yield Candidate(
                    token_ids=(pending_id, *draft),
                    # Divided by one more than there are, so that longer matches score more.
                    score=ngram + counts[draft] / (1 + counts.total()),
                    match_len=ngram,
                    recency=latest[draft],
                    source="context",
                    count=counts[draft],
                )

    def _successors(self, table: BigramTable, context: Context, limit: int) -> Iterator[Candidate]:
        """The best successors of pending, extended."""
        chains, probs = table.chains(context.pending_id, limit, self.num_tokens)
        for rank, (chain, of_tokens) in enumerate(
            zip(chains.tolist(), probs.tolist(), strict=True)
        ):
            draft = context.until_eos(tuple(chain))
            yield Candidate(
                token_ids=(context.pending_id, *draft),
                score=of_tokens[0],
                match_len=1,
                recency=-rank,  # Equal probabilities keep the order of the table.
                source=self.name,
                token_probs=(1.0, *of_tokens[: len(draft)]),
            )
