"""LogitSpec: the tokens that pending was preferred to are guesses of what follows it.

The logits that decided about pending also rank the token behind it. Each guess w lengthens the
query of an n-gram look-up by one token, so that a branch can start where the text itself has no
match; one more branch continues the text and pending without a guess.

    branch 0        pending, then what followed the last n tokens of (text, pending)
    branch of w     pending, w, then what followed the last n tokens of (text, pending, w)

Source: Liu et al. 2025, LogitSpec (arXiv 2507.01449), and repository smart-lty/LogitSpec for the
pool, the branch lengths by rank and the order.
Cost: one ranking of the vocabulary and O(num_guesses * max_ngram^2) per propose; O(max_ngram^2) per
token that is observed.
Deviations: pending is the published root and stands in front of each candidate; what it is in the
ranking is skipped, whether it is the argmax or was sampled. The original knows greedy decoding
only; under another law, tokens that it excludes are no guesses. A rescan of the last 40 positions
becomes a pool that is always up to date.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from primitives.fields import check_range
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.continuation_pool import ContinuationPool
from primitives.structures.top_tokens import top_tokens
from primitives.types import MAX_DRAFT_NODES, MAX_NGRAM, Candidate, Context, StepOutcome

POOL_SOURCE = "continuation_pool"
"""Source of the branch without a guess."""


@RETRIEVERS.register("next_next_token")
@dataclass(kw_only=True)
class NextNextToken(Retriever):
    """N-gram look-up behind pending and behind each guess of the token after it.

    Attributes:
        max_ngram: Longest n that is looked up, in tokens, in [1, 64].
        num_tokens: Longest branch without a guess behind pending, in tokens, in [1, 1024].
        num_guesses: Most probable tokens that are guesses, at least 1; pending is skipped if it is
            among them.
        near_rank: Last rank (0 is the most probable) of the long branches, at least 0.
        near_len: Their length with the guess, in tokens, in [1, 1024].
        middle_rank: Last rank of the branches of middle length, at least `near_rank`.
        middle_len: Their length with the guess, in tokens, in [1, 1024].
        far_len: Length of all other branches with the guess, in tokens, in [1, 1024].
    """

    needs = frozenset({"last_logits"})

    max_ngram: int = 3
    num_tokens: int = 20
    num_guesses: int = 64
    near_rank: int = 8
    near_len: int = 4
    middle_rank: int = 32
    middle_len: int = 3
    far_len: int = 1
    _pool: ContinuationPool | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lengths = ("num_tokens", "near_len", "middle_len", "far_len")
        check_range(self, *lengths, least=1, most=MAX_DRAFT_NODES)
        check_range(self, "max_ngram", least=1, most=MAX_NGRAM)
        check_range(self, "num_guesses", least=1)
        check_range(self, "near_rank", least=0)
        if self.middle_rank < self.near_rank:
            raise ValueError(
                f"middle_rank must be ≥ near_rank ({self.near_rank}), got {self.middle_rank}"
            )

    def begin(self, context: Context) -> None:
        """Starts anew with the n-grams of the prompt."""
        self._pool = ContinuationPool(max_ngram=self.max_ngram, num_tokens=self.num_tokens)
        self._pool.append(context.token_ids.tolist())

    def observe(self, outcome: StepOutcome) -> None:
        """Adds the committed tokens to the pool."""
        assert self._pool is not None
        self._pool.append(outcome.token_ids.tolist())

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Branch 0, then one branch per guess by falling probability.

        Returns:
            Scores are negative ranks, and 1 for branch 0. `match_len` does not count the guess:
            it is no part of the text.
        """
        return list(islice(self._branches(context), limit))

    def check_integrity(self) -> None:
        """Checks the pool."""
        if self._pool is not None:
            self._pool.check_integrity()

    def _branches(self, context: Context) -> Iterator[Candidate]:
        assert self._pool is not None
        pending_id = context.pending_id
        query: list[int] = context.ids_with_pending[-self.max_ngram :].tolist()
        ngram, end = self._pool.longest_match(query)
        if ngram:
            yield Candidate(
                token_ids=context.until_eos(
                    (pending_id, *self._pool.continuation(end, self.num_tokens))
                ),
                score=1.0,
                match_len=ngram,
                recency=end,
                source=POOL_SOURCE,
            )
        for rank, guess in self._guesses(context):
            ngram, end = self._pool.longest_match([*query, guess])
            length = self._branch_len(rank) - 1 if ngram else 0
            copied = self._pool.continuation(end, length)
            yield Candidate(
                token_ids=context.until_eos((pending_id, guess, *copied)),
                score=-float(rank),
                match_len=max(ngram - 1, 0),
                recency=end,
                source=self.name,
            )

    def _guesses(self, context: Context) -> Iterator[tuple[int, int]]:
        """Ranks and ids of the tokens that pending was preferred to."""
        logits = context.last_logits
        assert logits is not None
        top_ids = top_tokens(logits[None], self.num_guesses)[0]
        pairs = zip(top_ids.tolist(), logits[top_ids].tolist(), strict=True)
        for rank, (token_id, logit) in enumerate(pairs):
            if token_id != context.pending_id and logit > -math.inf:
                yield rank, token_id

    def _branch_len(self, rank: int) -> int:
        if rank <= self.near_rank:
            return self.near_len
        return self.middle_len if rank <= self.middle_rank else self.far_len
