"""Dense retrieval: copy what followed where the target model was in a similar state.

The hidden state that pending was predicted from is the query. Its nearest neighbours in a corpus
of the target model's own states are continued there; those that start with pending are drafts.

Source: Gritta, Xue, Lampouras 2025 (DReSD), arXiv 2502.15572, section 3; branch DReSD of the
repository huawei-noah/HEBO.
Cost: one search of the datastore and O(num_neighbors * num_tokens) per propose, nothing per
observe.
Deviations: continuations end with their document instead of being padded with EOS; duplicates
count once; the state after the prefill is a query too, where the original decodes one token first;
candidates share the rows of a draft tree instead of a batch row each. How keys are made and
indexed is the datastore's matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from primitives.fields import check_range
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.hidden_states import HiddenStateStore
from primitives.types import MAX_DRAFT_NODES, Candidate, Context


@RETRIEVERS.register("hidden_state")
@dataclass(kw_only=True)
class HiddenState(Retriever):
    """Nearest neighbours of the last hidden state whose continuation starts with pending.

    Attributes:
        num_neighbors: Neighbours that are looked at, at least 1.
        num_tokens: Most draft tokens behind pending, in [1, 1024].
    """

    needs = frozenset({"hidden"})
    datastore = "hidden_states"

    num_neighbors: int = 50
    num_tokens: int = 10
    _store: HiddenStateStore | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "num_neighbors", least=1)
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)

    def attach(self, store: HiddenStateStore) -> None:
        """Hands over the corpus of hidden states."""
        self._store = store

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Distinct continuations by falling cosine, which is their score.

        Raises:
            RuntimeError: If no datastore was attached.
        """
        if self._store is None:
            raise RuntimeError(f"retriever {self.name!r} has no datastore: attach one")
        assert context.last_hidden is not None
        positions, cosines = self._store.search(
            self._store.project(context.last_hidden), self.num_neighbors
        )
        counts: dict[tuple[int, ...], int] = {}
        best: list[tuple[tuple[int, ...], float, int]] = []
        for position, cosine in zip(positions.tolist(), cosines.tolist(), strict=True):
            continuation = self._store.continuation(position, 1 + self.num_tokens)
            token_ids = context.until_eos(continuation)
            if len(token_ids) < 2 or token_ids[0] != context.pending_id:
                continue
            if token_ids not in counts:
                best.append((token_ids, cosine, position))
            counts[token_ids] = counts.get(token_ids, 0) + 1
        return [
            Candidate(
                token_ids=token_ids,
                score=cosine,
                recency=-position,  # The lower position wins a tie.
                source=self.name,
                count=counts[token_ids],
            )
            for token_ids, cosine, position in best[:limit]
        ]
