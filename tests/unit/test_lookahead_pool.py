"""The n-gram pool: the last n-grams behind each token, and how they are proposed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.retrievers.lookahead_pool import LookaheadPool
from primitives.structures.ngram_pool import NgramPool
from primitives.types import Candidate, Context, DraftTree, StepOutcome


def context(text: str, eos: str = "") -> Context:
    return Context(
        ids_with_pending=np.array([ord(c) for c in text], dtype=np.int64),
        num_prompt_tokens=len(text) - 1,
        vocab_size=128,
        eos_ids=frozenset(map(ord, eos)),
    )


def committed(text: str) -> StepOutcome:
    ids = [ord(c) for c in text]
    tree = DraftTree.from_nodes(ids, range(-1, len(ids) - 1))
    path = tuple(range(len(ids)))
    return StepOutcome(token_ids=tree.token_ids, pending_id=None, tree=tree, path=path)


def drafts(retriever: LookaheadPool, text: str, eos: str = "", limit: int = 16) -> list[str]:
    return [_text(candidate)[1:] for candidate in retriever.propose(context(text, eos), limit)]


def _text(candidate: Candidate) -> str:
    return "".join(map(chr, candidate.token_ids))


def started(text: str, **fields: int | bool) -> LookaheadPool:
    """On a prompt; the last character is pending."""
    retriever = LookaheadPool(**{"ngram": 3, **fields})
    retriever.begin(context(text))
    return retriever


def test_guesses_are_the_latest_ngrams_of_pending() -> None:
    # Trigrams of abcabdab: abc 3, bca 4, cab 5, abd 6, bda 7, dab 8.
    retriever = started("abcabdabx")
    assert drafts(retriever, "xa") == ["bd", "bc"]
    assert drafts(retriever, "xb") == ["da", "ca"]
    assert drafts(retriever, "xa", limit=1) == ["bd"]
    assert drafts(retriever, "xz") == []
    candidates = retriever.propose(context("xa"), 16)
    assert [c.recency for c in candidates] == [6, 3]


def test_the_oldest_of_more_than_the_capacity_is_forgotten() -> None:
    assert drafts(started("abcabdabeabcx"), "xa") == ["bc", "be", "bd"]
    assert drafts(started("abcabdabeabcx", num_guesses=2), "xa") == ["bc", "be"]


def test_generated_text_completes_ngrams() -> None:
    retriever = started("abx")
    assert drafts(retriever, "xa") == []
    retriever.observe(committed("cd"))
    assert drafts(retriever, "xa") == ["bc"]
    assert drafts(retriever, "xb") == ["cd"]
    unprompted = started("abcx", from_prompt=False)
    assert drafts(unprompted, "xa") == []
    unprompted.observe(committed("ade"))
    assert drafts(unprompted, "xa") == ["de"]


def test_what_ends_at_the_same_eos_is_one_guess() -> None:
    assert drafts(started("a.ba.cx"), "xa", eos=".") == ["."]


@given(st.lists(st.integers(0, 2), max_size=30), st.integers(2, 4), st.integers(1, 3))
def test_pool_equals_a_scan_of_the_text(ids: list[int], ngram: int, capacity: int) -> None:
    """Oracle: the n-grams that begin with the token, from the end on, distinct, `capacity` of them.

    An n-gram that was dropped and seen again is new, so a scan for the latest distinct ones agrees.
    """
    pool = NgramPool(ngram, capacity)
    for start in range(0, len(ids), 4):
        pool.append(ids[start : start + 4])
        pool.check_integrity()
    for token_id in range(3):
        expected: dict[tuple[int, ...], int] = {}
        for start in range(len(ids) - ngram, -1, -1):
            if ids[start] == token_id and len(expected) < capacity:
                expected.setdefault(tuple(ids[start + 1 : start + ngram]), start + ngram)
        assert pool.behind(token_id) == list(expected.items())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ngram": 1}, r"ngram must be in \[2, 64\], got 1"),
        ({"num_guesses": 0}, "num_guesses must be ≥ 1, got 0"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LookaheadPool(**fields)
