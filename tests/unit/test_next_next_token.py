"""LogitSpec's branches on a hand-worked text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from primitives.retrievers.next_next_token import POOL_SOURCE, NextNextToken
from primitives.types import Candidate, Context

TEXT, PENDING = [1, 2, 3, 4, 1, 2], 3
RANKING = [3, 4, 9, 1, 2]  # Best first; 3 is pending.


def propose(
    ranking: list[int] = RANKING,
    limit: int = 16,
    text: list[int] = TEXT,
    pending_id: int = PENDING,
    eos_ids: Any = (),
    **fields: Any,
) -> list[Candidate]:
    """Candidates under logits that rank the given tokens first and exclude the others."""
    ids = np.array([*text, pending_id])
    ids.flags.writeable = False
    logits = torch.full((10,), -math.inf, dtype=torch.float64)
    logits[ranking] = -torch.arange(len(ranking), dtype=torch.float64)
    context = Context(
        ids_with_pending=ids,
        num_prompt_tokens=len(text),
        vocab_size=10,
        eos_ids=frozenset(eos_ids),
        last_logits=logits,
    )
    retriever = NextNextToken(**fields)
    retriever.begin(context)
    return retriever.propose(context, limit)


def tokens(candidates: list[Candidate]) -> list[tuple[int, ...]]:
    return [candidate.token_ids for candidate in candidates]


def test_branches_in_their_order() -> None:
    """Branch 0: 1 2 3 is followed by 4 1 2. Guess 4: 2 3 4 by 1 2. Guess 9: nothing.

    Guess 1: neither 2 3 1 nor 3 1 occurs, 1 is followed by 2 3 4 at its first place; guess 2
    likewise.
    """
    assert tokens(propose()) == [
        (3, 4, 1, 2),
        (3, 4, 1, 2),
        (3, 9),
        (3, 1, 2, 3, 4),
        (3, 2, 3, 4, 1),
    ]


def test_match_len_counts_the_text_without_the_guess() -> None:
    candidates = propose()
    assert [c.match_len for c in candidates] == [3, 2, 0, 0, 0]
    assert [c.score for c in candidates] == [1.0, -1.0, -2.0, -3.0, -4.0]
    assert [c.recency for c in candidates] == [3, 4, 0, 1, 2]
    assert [c.source for c in candidates] == [POOL_SOURCE, *["next_next_token"] * 4]


def test_shorter_ngrams_are_looked_up_in_turn() -> None:
    assert [c.match_len for c in propose(max_ngram=1)] == [1, 0, 0, 0, 0]
    # 9 2 3 does not occur, 2 3 does: it is followed by 4.
    (candidate,) = propose([3], text=[9, 2, 3, 4, 1, 9, 8, 2], num_tokens=1)
    assert (candidate.match_len, candidate.token_ids) == (2, (3, 4))


def test_lengths_fall_with_the_rank() -> None:
    fields = {"near_rank": 1, "near_len": 3, "middle_rank": 3, "middle_len": 2, "far_len": 1}
    assert tokens(propose(**fields))[1:] == [(3, 4, 1, 2), (3, 9), (3, 1, 2), (3, 2)]
    assert tokens(propose(num_tokens=2))[0] == (3, 4, 1)


def test_pending_takes_a_rank_but_is_no_guess() -> None:
    """Here pending was sampled: the argmax is a guess, behind branch 0."""
    candidates = propose([4, 3, 9])
    assert tokens(candidates) == [(3, 4, 1, 2), (3, 4, 1, 2), (3, 9)]
    assert [c.score for c in candidates] == [1.0, 0.0, -2.0]
    assert len(propose(num_guesses=2)) == 2  # Branch 0, and one guess beside pending.
    assert len(propose(num_guesses=1)) == 1


def test_excluded_tokens_are_no_guesses() -> None:
    assert tokens(propose([3])) == [(3, 4, 1, 2)]


def test_without_a_match_only_guesses_are_left() -> None:
    assert tokens(propose([5, 9], text=[1, 2], pending_id=5)) == [(5, 9)]


def test_limit_and_eos_cut() -> None:
    assert propose(limit=0) == []
    assert len(propose(limit=2)) == 2
    assert tokens(propose(eos_ids=[1])) == [(3, 4, 1), (3, 4, 1), (3, 9), (3, 1), (3, 2, 3, 4, 1)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_ngram": 0}, r"max_ngram must be in \[1, 64\], got 0"),
        ({"num_guesses": 0}, "num_guesses must be ≥ 1, got 0"),
        ({"near_rank": -1}, "near_rank must be ≥ 0, got -1"),
        ({"middle_rank": 7}, r"middle_rank must be ≥ near_rank \(8\), got 7"),
        ({"far_len": 0}, r"far_len must be in \[1, 1024\], got 0"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NextNextToken(**fields)
