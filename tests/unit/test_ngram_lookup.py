"""Occurrences of the last tokens, against a scan."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from primitives.structures.ngram_lookup import ngram_matches

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=30)


def scan(token_ids: list[int], query: list[int], min_ngram: int, max_ngram: int) -> list:
    found = []
    for ngram in range(min(max_ngram, len(query)), min_ngram - 1, -1):
        wanted = query[-ngram:]
        inner = range(ngram, len(token_ids))
        if ends := [end for end in inner if token_ids[end - ngram : end] == wanted]:
            found.append((ngram, ends))
    return found


def matches(token_ids: list[int], query: list[int], min_ngram: int, max_ngram: int) -> list:
    ids, query_ids = np.array(token_ids, dtype=np.int64), np.array(query, dtype=np.int64)
    found = ngram_matches(ids, query_ids, min_ngram=min_ngram, max_ngram=max_ngram)
    return [(ngram, ends.tolist()) for ngram, ends in found]


@given(TEXTS, st.integers(1, 3), st.integers(1, 40))
def test_a_text_in_itself(token_ids: list[int], min_ngram: int, max_ngram: int) -> None:
    expected = scan(token_ids, token_ids, min_ngram, max_ngram)
    assert matches(token_ids, token_ids, min_ngram, max_ngram) == expected


@given(st.one_of(st.just([]), TEXTS), st.one_of(st.just([]), TEXTS), st.integers(1, 40))
def test_one_text_in_another(token_ids: list[int], query: list[int], max_ngram: int) -> None:
    assert matches(token_ids, query, 1, max_ngram) == scan(token_ids, query, 1, max_ngram)


def test_longest_first_and_a_token_behind_each() -> None:
    assert matches([5, 7, 1, 7, 5, 7], [5, 7], 1, 9) == [(2, [2]), (1, [2, 4])]
