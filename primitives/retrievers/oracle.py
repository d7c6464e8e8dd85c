"""Oracle: proposes what vanilla answered; the ceiling of what any drafts can bring.

Each token of vanilla's answer is drafted right with probability `accuracy`; behind the first wrong
one of a draft all are wrong, as those of a real draft would be. So a chain of k tokens gives

    (1 - accuracy^(k + 1)) / (1 - accuracy)

tokens per step, on average and as long as the answer lasts.

Source: the two bounds of a draft's worth are common; the formula is that of Leviathan et al. 2023
(arXiv 2211.17192), equation 1.
Cost: O(num_tokens) per propose, nothing per observe. Vanilla's answer is not part of the method's
time.
Deviations: which tokens are wrong is a function of seed and answer, not of chance; where the output
has left vanilla's answer, as sampled or relaxed ones do, nothing is proposed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int

from primitives.fields import check_range
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.types import MAX_DRAFT_NODES, Candidate, Context


@RETRIEVERS.register("oracle")
@dataclass(kw_only=True)
class Oracle(Retriever):
    """Vanilla's own continuation, spoilt to an accuracy.

    Attributes:
        num_tokens: Draft length, in tokens, in [1, 1024].
        accuracy: Share of tokens that are drafted right where all before them are, in [0, 1].
        seed: Which ones are wrong, at least 0.
    """

    needs = frozenset({"reference"})

    num_tokens: int = 10
    accuracy: float = 1.0
    seed: int = 0
    _reference: Int[np.ndarray, "m"] = field(init=False, repr=False, compare=False)
    _is_wrong: Bool[np.ndarray, "m"] = field(init=False, repr=False, compare=False)
    _wrong_ids: Int[np.ndarray, "m"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)
        check_range(self, "accuracy", least=0, most=1)
        check_range(self, "seed", least=0)

    def begin(self, context: Context) -> None:
        """Takes vanilla's answer to this prompt; without one it proposes nothing."""
        self._spoil(context.reference_ids or (), context.vocab_size)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """The continuation of the answer so far.

        Returns:
            One candidate; none where the answer ends or the output has left it.
        """
        output = context.ids_with_pending[context.num_prompt_tokens :]
        start = len(output)
        if limit < 1 or not np.array_equal(output, self._reference[:start]):
            return []
        end = min(start + self.num_tokens, len(self._reference))
        if start == end:
            return []
        wrong = np.logical_or.accumulate(self._is_wrong[start:end])
        draft = np.where(wrong, self._wrong_ids[start:end], self._reference[start:end])
        token_ids = context.until_eos((context.pending_id, *draft.tolist()))
        return [Candidate(token_ids=token_ids, match_len=start, recency=start, source=self.name)]

    def _spoil(self, reference_ids: tuple[int, ...], vocab_size: int) -> None:
        """Fixes which tokens of an answer are drafted wrong, and what stands there instead."""
        self._reference = np.array(reference_ids, dtype=np.int64)
        num_ids = len(reference_ids)
        random = np.random.default_rng([self.seed, *reference_ids])
        self._is_wrong = random.random(num_ids) >= self.accuracy
        if vocab_size == 1:  # Nothing else could stand there.
            self._wrong_ids = self._reference
            return
        shifts = random.integers(1, vocab_size, num_ids)
        self._wrong_ids = (self._reference + shifts) % vocab_size
