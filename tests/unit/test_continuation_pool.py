"""The pool of n-grams on hand-worked texts, and against the published way of keeping it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.structures.continuation_pool import ContinuationPool


def pool_of(*parts: str, num_tokens: int = 2, max_ngram: int = 3) -> ContinuationPool:
    pool = ContinuationPool(max_ngram=max_ngram, num_tokens=num_tokens)
    for part in parts:
        pool.append(list(map(ord, part)))
        pool.check_integrity()
    return pool


def look_up(pool: ContinuationPool, query: str) -> tuple[int, str]:
    """Length of the match and what follows it."""
    ngram, end = pool.longest_match(list(map(ord, query)))
    behind = pool.continuation(end, pool.num_tokens) if ngram else []
    return ngram, "".join(map(chr, behind))


def test_a_short_continuation_replaces_no_complete_one() -> None:
    assert look_up(pool_of("abcabd"), "ab") == (2, "ca")
    assert look_up(pool_of("abcabd", "e"), "ab") == (2, "de")


def test_of_short_continuations_the_first_is_the_longest() -> None:
    assert look_up(pool_of("abcab", num_tokens=9), "b") == (1, "cab")


def test_longest_end_of_the_query_is_found() -> None:
    pool = pool_of("abcde")
    assert look_up(pool, "abc") == (3, "de")
    assert look_up(pool, "xbc") == (2, "de")
    assert look_up(pool, "xxc") == (1, "de")
    assert look_up(pool, "abx") == (0, "")
    assert look_up(pool, "e") == (0, "")  # Nothing follows it.
    assert look_up(pool, "") == (0, "")
    assert look_up(pool_of("abcde", max_ngram=1), "abc") == (1, "de")


def test_integrity_notices_a_wrong_place() -> None:
    pool = pool_of("abab")
    pool._ends[ord("a"),] = 2
    with pytest.raises(AssertionError, match="continued from the wrong place"):
        pool.check_integrity()


@given(st.data(), st.integers(1, 4), st.integers(1, 3))
def test_equals_rescanning_the_end_of_the_text(
    data: st.DataObject, num_tokens: int, max_ngram: int
) -> None:
    """The published pool; a step commits at most a whole continuation and the token behind it."""
    parts = data.draw(
        st.lists(st.lists(st.integers(0, 2), max_size=num_tokens + 1), min_size=1, max_size=8)
    )
    pool = ContinuationPool(max_ngram=max_ngram, num_tokens=num_tokens)
    text: list[int] = []
    published: dict[tuple[int, ...], list[int]] = {}
    for part in parts:
        pool.append(part)
        text += part
        for end in range(max(1, len(text) - 2 * num_tokens), len(text)):
            for length in range(1, min(max_ngram, end) + 1):
                ngram, behind = tuple(text[end - length : end]), text[end : end + num_tokens]
                if len(behind) >= len(published.get(ngram, [])):
                    published[ngram] = behind
        for ngram, behind in published.items():
            found, end = pool.longest_match(ngram)
            assert (found, pool.continuation(end, num_tokens)) == (len(ngram), behind)
        pool.check_integrity()
