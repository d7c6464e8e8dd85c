"""Semantic retrieval: neighbours of the hidden state in a corpus and in the text so far.

Unlike in dense retrieval with a filter, candidates that start with another token than pending stay
in the list, behind those that agree with it: a relaxed verifier may admit them.

    score = alpha * [first token == pending] + beta * cosine

Source: SENSE, Semantic Embedding Navigation: hybrid datastore and composite score (Eq. 8); what
its text leaves open is reconstructed.
Cost: one search of the datastore, one product with the keys of the text (O(s * p)) and
O(num_neighbors * num_tokens) per propose; one projection per observe.
Deviations: the in-context store starts anew with each prompt. Without a corpus there is no fitted
projection, and the raw states are its keys. The source falls back to lexical retrieval where there
is no semantic candidate; here that is off by default, so that it does not blur an ablation. Where
switched on, it steps in when no semantic candidate starts with pending: with an unfiltered search
there nearly always is some candidate, and exact verifiers admit no other. Weights and numbers of
neighbours, candidates and tokens are ours: the source does not state them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from primitives.fields import check_range, check_words
from primitives.interfaces import DatastoreKind, Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.hidden_states import GrowingKeys, HiddenStateStore, raw_keys
from primitives.structures.ngram_lookup import ngram_matches
from primitives.types import MAX_DRAFT_NODES, Candidate, Context, StepOutcome, rank_candidates


class _Hit(NamedTuple):
    """A continuation somewhere; cosine 0 where none was computed."""

    token_ids: tuple[int, ...]
    cosine: float
    recency: int
    source: str
    match_len: int = 0


@RETRIEVERS.register("semantic")
@dataclass(kw_only=True)
class Semantic(Retriever):
    """Nearest neighbours of the last hidden state, those that agree with pending first.

    Ties of the score go to the text before the corpus, to later positions of the text, and to
    earlier positions of the corpus.

    Attributes:
        static: Whether a corpus is searched.
        dynamic: Whether the text so far is searched.
        seed_prompt: Whether the text that is searched includes the prompt.
        num_neighbors: Neighbours that each of the two gives, at least 1.
        num_candidates: Most candidates, at least 1.
        num_tokens: Most tokens of a candidate, the first one included, in [2, 1024].
        alpha: Weight of agreeing with pending, at least 0; above 2 * beta it decides alone.
        beta: Weight of the cosine, above 0.
        drop_prefixes: Whether candidates that are the beginning of a better one are left out.
        fallback: `prompt_lookup` adds lexical matches when no candidate starts with pending.
        max_ngram: Longest match that the fallback looks up, in tokens, at least 1.
    """

    needs = frozenset({"hidden", "prompt_hidden"})
    datastore = "hidden_states"
    proposes_alternatives = True

    static: bool = True
    dynamic: bool = True
    seed_prompt: bool = True
    num_neighbors: int = 50
    num_candidates: int = 16
    num_tokens: int = 10
    alpha: float = 10.0
    beta: float = 1.0
    drop_prefixes: bool = False
    fallback: Literal["none", "prompt_lookup"] = "none"
    max_ngram: int = 3
    _store: HiddenStateStore | None = field(default=None, init=False, repr=False, compare=False)
    _keys: GrowingKeys | None = field(default=None, init=False, repr=False, compare=False)
    _first_position: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (self.static or self.dynamic):
            raise ValueError("static and dynamic must not both be false: nothing would be searched")
        check_words(self)
        check_range(self, "num_neighbors", "num_candidates", "max_ngram", least=1)
        check_range(self, "num_tokens", least=2, most=MAX_DRAFT_NODES)
        check_range(self, "alpha", least=0, below=math.inf)
        check_range(self, "beta", above=0, below=math.inf)
        if not self.dynamic:
            self.needs = frozenset({"hidden"})

    @property
    def wanted_datastore(self) -> DatastoreKind | None:
        """None without `static`."""
        return self.datastore if self.static else None

    def attach(self, store: HiddenStateStore) -> None:
        """Hands over the corpus.

        Raises:
            TypeError: Without `static`.
        """
        if not self.static:
            super().attach(store)
        self._store = store

    def begin(self, context: Context) -> None:
        """Starts the in-context store.

        Raises:
            RuntimeError: With `static`, if no datastore was attached.
        """
        if self.static and self._store is None:
            raise RuntimeError(f"retriever {self.name!r} has no datastore: attach one")
        if self.dynamic:
            assert context.prompt_hidden is not None
            self._first_position = 0 if self.seed_prompt else len(context.token_ids)
            keys = self._project(context.prompt_hidden[self._first_position :])
            self._keys = GrowingKeys(keys.shape[1])
            self._keys.append(keys)

    def observe(self, outcome: StepOutcome) -> None:
        """Appends the states of the committed nodes."""
        if self._keys is not None:
            assert outcome.hidden is not None
            self._keys.append(self._project(outcome.hidden))

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Distinct continuations by falling score."""
        assert context.last_hidden is not None
        pending_id = context.pending_id
        query = self._project(context.last_hidden)
        hits = _usable([*self._dynamic_hits(query, context), *self._static_hits(query)], context)
        if self.fallback == "prompt_lookup" and all(h.token_ids[0] != pending_id for h in hits):
            hits += _usable(self._lexical_hits(context), context)
        ranked = rank_candidates(self._candidates(hits, pending_id))
        if self.drop_prefixes:
            ranked = _without_prefixes(ranked)
        return ranked[: min(limit, self.num_candidates)]

    def check_integrity(self) -> None:
        """Checks the in-context store."""
        if self._keys is not None:
            self._keys.check_integrity()

    def _project(self, hidden: Float[Tensor, "*rows d"]) -> Float[np.ndarray, "*rows p"]:
        return raw_keys(hidden) if self._store is None else self._store.project(hidden)

    def _dynamic_hits(self, query: Float[np.ndarray, "p"], context: Context) -> Iterator[_Hit]:
        """From the text: the newest key is the query itself, with nothing behind it but pending."""
        if self._keys is None or len(self._keys) < 2:
            return
        rows, cosines = self._keys.search(query, self.num_neighbors, end=len(self._keys) - 1)
        ids = context.ids_with_pending
        for row, cosine in zip(rows.tolist(), cosines.tolist(), strict=True):
            start = self._first_position + row + 1
            token_ids = tuple(ids[start : start + self.num_tokens].tolist())
            yield _Hit(token_ids, cosine, start, "dynamic")

    def _static_hits(self, query: Float[np.ndarray, "p"]) -> Iterator[_Hit]:
        """From the corpus; recencies at most 0 put it behind the text and reverse its order."""
        if self._store is None:
            return
        positions, cosines = self._store.search(query, self.num_neighbors)
        for position, cosine in zip(positions.tolist(), cosines.tolist(), strict=True):
            token_ids = self._store.continuation(position, self.num_tokens)
            yield _Hit(token_ids, cosine, -position, "static")

    def _lexical_hits(self, context: Context) -> Iterator[_Hit]:
        """What followed the longest n-gram that occurs before, behind pending."""
        ids = context.ids_with_pending
        for ngram, ends in ngram_matches(ids, ids, max_ngram=self.max_ngram)[:1]:
            for end in ends[::-1].tolist():
                draft = ids[end : end + self.num_tokens - 1].tolist()
                yield _Hit((context.pending_id, *draft), 0.0, end, "lexical", ngram)

    def _candidates(self, hits: list[_Hit], pending_id: int) -> list[Candidate]:
        """One candidate per continuation, from its best hit; of equals the first."""
        counts = Counter(hit.token_ids for hit in hits)
        best: dict[tuple[int, ...], _Hit] = {}
        for hit in hits:
            if hit.token_ids not in best or hit.cosine > best[hit.token_ids].cosine:
                best[hit.token_ids] = hit
        return [
            Candidate(
                token_ids=hit.token_ids,
                score=self.alpha * (hit.token_ids[0] == pending_id) + self.beta * hit.cosine,
                match_len=hit.match_len,
                recency=hit.recency,
                source=hit.source,
                count=counts[hit.token_ids],
            )
            for hit in best.values()
        ]


def _usable(hits: Iterable[_Hit], context: Context) -> list[_Hit]:
    """Hits cut behind their first EOS; pending alone drafts nothing."""
    cut = [hit._replace(token_ids=context.until_eos(hit.token_ids)) for hit in hits]
    return [hit for hit in cut if hit.token_ids != (context.pending_id,)]


def _without_prefixes(ranked: list[Candidate]) -> list[Candidate]:
    kept: list[Candidate] = []
    for candidate in ranked:
        token_ids = candidate.token_ids
        if all(other.token_ids[: len(token_ids)] != token_ids for other in kept):
            kept.append(candidate)
    return kept
