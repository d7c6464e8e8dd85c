"""Prompt lookup on hand-worked texts, and against the two rules that it reproduces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from primitives.retrievers.prompt_lookup import PromptLookup
from primitives.types import Candidate, Context

texts = st.lists(st.integers(0, 2), min_size=1, max_size=40)


def propose(text: str | list[int], limit: int = 8, **fields: Any) -> list[Candidate]:
    """Candidates for a text whose last token is pending; letters stand for ids."""
    token_ids = [ord(token) if isinstance(token, str) else token for token in text]
    ids = np.array(token_ids, dtype=np.int64)
    ids.flags.writeable = False
    context = Context(ids_with_pending=ids, num_prompt_tokens=max(len(ids) - 1, 0), vocab_size=128)
    retriever = PromptLookup(**fields)
    retriever.begin(context)
    return retriever.propose(context, limit)


def drafts(text: str, **fields: Any) -> list[str]:
    """What is proposed behind pending, as letters."""
    return ["".join(map(chr, candidate.token_ids[1:])) for candidate in propose(text, **fields)]


#       0123456789
TEXT = "abcXabcYab"


def test_first_copies_the_oldest_match() -> None:
    assert drafts(TEXT, match="first", num_tokens=4) == ["cXab"]


def test_last_copies_the_most_recent_match() -> None:
    assert drafts(TEXT, match="last", num_tokens=4) == ["cYab"]


def test_all_lists_longer_matches_first_then_more_recent_ones() -> None:
    # n = 2 ("ab") ends at 6 and 2; n = 1 ("b") finds the same two places again.
    assert drafts(TEXT, match="all", num_tokens=4) == ["cYab", "cXab"]
    # n = 3 ("bab") ends at 4; n = 2 ("ab") at 7, and at 4 again; n = 1 ("b") is new at 9 only.
    assert drafts("xbabyabzbab", match="all", num_tokens=2) == ["ya", "zb", "ab"]


def test_all_counts_occurrences_behind_matches_of_one_length() -> None:
    """Behind "ab" stand c, d, c; "b" alone has e and two more d, which change nothing."""
    found = propose("abcabdabcQbdRbdSbeab", match="all", num_tokens=1, max_ngram=2, limit=9)
    assert [(chr(c.token_ids[1]), c.match_len, c.count) for c in found] == [
        ("c", 2, 2), ("d", 2, 1), ("e", 1, 1),
    ]  # fmt: skip
    # The candidate at the limit is counted to the end, too.
    (found,) = propose("abcabdabc_ab", match="all", num_tokens=1, max_ngram=2, limit=1)
    assert (chr(found.token_ids[1]), found.count) == ("c", 2)


def test_candidate_carries_pending_match_length_and_place() -> None:
    (candidate,) = propose(TEXT, match="last", num_tokens=3)
    assert candidate.token_ids == tuple(map(ord, "bcYa"))
    assert (candidate.match_len, candidate.score, candidate.recency) == (2, 2.0, 6)
    assert candidate.source == "prompt_lookup"


def test_limit_cuts_the_list() -> None:
    assert len(propose("xaxbxcx", limit=2, match="all", num_tokens=1)) == 2
    for match in ("first", "last", "all"):
        assert propose("xaxbxcx", limit=0, match=match) == []


def test_longest_match_wins_over_an_older_short_one() -> None:
    assert drafts("bQabRab", max_ngram=2, num_tokens=1) == ["R"]
    assert drafts("bQabRab", max_ngram=1, num_tokens=1) == ["Q"]


def test_shorter_than_min_ngram_is_no_match() -> None:
    assert drafts("bQabRab", min_ngram=3) == []


def test_short_continuation_counts_if_allowed() -> None:
    # The match at the end leaves "bab", one token fewer than num_tokens.
    assert drafts("ababab", max_ngram=1, match="last", num_tokens=4) == ["ab"]
    assert drafts("ababab", max_ngram=1, match="last", num_tokens=4, allow_short=False) == ["abab"]


def test_original_rule_skips_matches_near_the_end() -> None:
    # "ab" matches at its end b = 2 only, and 2 < len - n = 4 - 2 does not hold.
    assert drafts("abab", max_ngram=2, min_ngram=2, num_tokens=1) == ["a"]
    assert drafts("abab", max_ngram=2, min_ngram=2, num_tokens=1, allow_short=False) == []
    # One token more in between, and b = 2 < 5 - 2 holds.
    assert drafts("abXab", max_ngram=2, min_ngram=2, num_tokens=1, allow_short=False) == ["X"]


def test_match_may_overlap_the_end() -> None:
    # n = 3: "aaa" ends at 3, which leaves one token; the last a of it is part of the query.
    assert drafts("aaaa") == ["a"]
    assert drafts("aaaa", max_ngram=1, num_tokens=10) == ["aaa"]
    assert drafts("aaaa", allow_short=False, num_tokens=1) == ["a"]


def test_ngram_longer_than_the_text_is_cut_to_it() -> None:
    assert drafts("aba", max_ngram=50) == ["ba"]
    assert drafts("a", max_ngram=50) == []
    assert drafts("", max_ngram=50) == []


def test_no_match_gives_no_candidate() -> None:
    assert drafts("abcd") == []


def test_eos_is_copied_like_any_token() -> None:
    """Cutting behind EOS is the decode loop's business, for all retrievers alike."""
    (candidate,) = propose([5, 6, 0, 7, 5, 6], num_tokens=3)
    assert candidate.token_ids == (6, 0, 7, 5)


@given(texts, st.integers(1, 4), st.integers(1, 5))
def test_default_rule_is_that_of_transformers(ids: list[int], max_ngram: int, length: int) -> None:
    theirs = PromptLookupCandidateGenerator(
        eos_token_id=torch.tensor([10**6]),  # in no text
        num_output_tokens=length,
        max_matching_ngram_size=max_ngram,
        max_length=10**6,
    )
    found, _ = theirs.get_candidates(torch.tensor([ids]), is_first_iteration=True)
    candidates = propose(ids, max_ngram=max_ngram, num_tokens=length)
    ours = list(candidates[0].token_ids[1:]) if candidates else []
    assert ours == found[0, len(ids) :].tolist()


@given(texts, st.integers(1, 4), st.integers(1, 5))
def test_original_rule_by_its_definition(ids: list[int], max_ngram: int, length: int) -> None:
    expected: list[int] = []
    for ngram in range(max_ngram, 0, -1):
        for start in range(len(ids) - ngram + 1):
            end = start + ngram
            fits = end + length <= len(ids) and end < len(ids) - ngram
            if not expected and fits and ids[start:end] == ids[-ngram:]:
                expected = ids[end : end + length]
    candidates = propose(ids, max_ngram=max_ngram, num_tokens=length, allow_short=False)
    assert (list(candidates[0].token_ids[1:]) if candidates else []) == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_ngram": 0}, "min_ngram must be ≥ 1, got 0"),
        ({"min_ngram": 3, "max_ngram": 2}, r"max_ngram must be ≥ min_ngram \(3\), got 2"),
        ({"num_tokens": 0}, r"num_tokens must be in \[1, 1024\], got 0"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PromptLookup(**fields)
