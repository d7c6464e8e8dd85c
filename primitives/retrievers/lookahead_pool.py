"""The n-gram pool of lookahead decoding: n-grams of the text that begin with pending.

Each n-gram of the text is kept under its first token, the latest ones only; those of pending are
the guesses, latest first.

Source: Fu et al. 2024, lookahead decoding (arXiv 2402.02057), section 3; repository
hao-ai-lab/LookaheadDecoding (LEVEL 5, GUESS_SET_SIZE 7, POOL_FROM_PROMPT).
Cost: O(num_guesses) per propose, O(ngram) per observed token and, in `begin`, per prompt token.
Deviations: the window of Jacobi iterations is not built, in which the model guesses n-grams beside
each step: the pool learns from the text alone. Guesses share the rows of a draft tree instead of
standing side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from primitives.fields import check_range
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.ngram_pool import NgramPool
from primitives.types import MAX_NGRAM, Candidate, Context, StepOutcome


@RETRIEVERS.register("lookahead_pool")
@dataclass(kw_only=True)
class LookaheadPool(Retriever):
    """N-grams of the text behind pending, latest first.

    Attributes:
        ngram: Tokens of an n-gram, pending included, in [2, 64].
        num_guesses: Most n-grams that are kept per first token, at least 1.
        from_prompt: Whether the prompt's n-grams are in the pool.
    """

    ngram: int = 5
    num_guesses: int = 7
    from_prompt: bool = True
    _pool: NgramPool | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "ngram", least=2, most=MAX_NGRAM)
        check_range(self, "num_guesses", least=1)

    def begin(self, context: Context) -> None:
        """Starts a pool."""
        self._pool = NgramPool(self.ngram, self.num_guesses)
        if self.from_prompt:
            self._pool.append(context.token_ids.tolist())

    def observe(self, outcome: StepOutcome) -> None:
        """Adds the n-grams that the committed tokens complete."""
        if self._pool is not None:
            self._pool.append(outcome.token_ids.tolist())

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Distinct guesses of one score; `recency` is the place behind the n-gram in the text."""
        if self._pool is None:
            return []
        candidates: dict[tuple[int, ...], Candidate] = {}
        for behind, end in self._pool.behind(context.pending_id)[:limit]:
            token_ids = (context.pending_id, *context.until_eos(behind))
            candidate = Candidate(token_ids=token_ids, match_len=1, recency=end, source=self.name)
            candidates.setdefault(token_ids, candidate)
        return list(candidates.values())

    def reset(self) -> None:
        """Drops the pool of the last prompt."""
        self._pool = None

    def check_integrity(self) -> None:
        """Checks the pool."""
        if self._pool is not None:
            self._pool.check_integrity()
