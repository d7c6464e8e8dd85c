"""Suffix arrays against brute force, and REST's retriever on top of them."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.registry import RETRIEVERS, TREE_BUILDERS
from primitives.structures.count_trie import CountTrie
from primitives.structures.suffix_array import SuffixArray, TokenStore
from primitives.types import Candidate, Context, rank_candidates

VOCAB = 3
documents_st = st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12), min_size=1)
query_st = st.lists(st.integers(0, VOCAB), min_size=1, max_size=10)
"""The id `VOCAB` is in no document."""


def store_of(documents: list[list[int]], per_chunk: int = 2, vocab_size: int = VOCAB) -> TokenStore:
    groups = [documents[i : i + per_chunk] for i in range(0, len(documents), per_chunk)]
    return TokenStore.from_documents(groups, vocab_size)


def longest_by_hand(
    documents: list[list[int]], query: list[int], min_len: int, max_len: int
) -> tuple[int, list[tuple[int, int]]]:
    """Longest match, and every (document, end) behind it."""
    for length in range(min(max_len, len(query)), min_len - 1, -1):
        found = [
            (number, end)
            for number, ids in enumerate(documents)
            for end in range(length, len(ids))
            if ids[end - length : end] == query[-length:]
        ]
        if found:
            return length, found
    return 0, []


def continuations(store: TokenStore, query: list[int], length: int, **bounds: int) -> list[tuple]:
    match = store.longest_match(np.array(query), **bounds)
    return [
        tuple(chunk.continuation(end, length))
        for chunk, _, ends in store.ends(match, 10**6)
        for end in ends.tolist()
    ]


def propose(store: TokenStore, query: list[int], limit: int = 64, **fields: int) -> list[Candidate]:
    retriever = RETRIEVERS.create("suffix_array", **fields)
    retriever.attach(store)
    context = Context(
        ids_with_pending=np.array(query), num_prompt_tokens=1, vocab_size=store.vocab_size
    )
    return retriever.propose(context, limit)


def test_order_of_a_small_text() -> None:
    """The picture of the module: text backwards is 0 before end 1, 0 1 before 5, 1 before 4."""
    array = SuffixArray.from_tokens(np.array([0, 1, 2, 1, 0, 1, 2]), 2)
    assert array.order.tolist() == [1, 5, 4]
    assert array.starts.tolist() == [0, 2, 3]
    array.check_integrity()
    assert array.longest_match([0, 1, 1]) == (2, 1, 2)
    assert array.continuation(5, 10) == [1]
    assert array.continuation(4, 1) == [0]


@given(documents_st, query_st, st.integers(1, 3), st.integers(0, 12), st.integers(1, 3))
def test_longest_match_equals_brute_force(
    documents: list[list[int]], query: list[int], min_len: int, more: int, per_chunk: int
) -> None:
    store = store_of(documents, per_chunk)
    store.check_integrity()
    bounds = {"min_len": min_len, "max_len": min_len + more}
    length, found = longest_by_hand(documents, query, *bounds.values())
    assert store.longest_match(np.array(query), **bounds).match_len == length
    expected = Counter(tuple(documents[number][end : end + 4]) for number, end in found)
    assert Counter(continuations(store, query, 4, **bounds)) == expected


def test_no_match_crosses_the_end_of_a_document() -> None:
    store = store_of([[0, 1], [2, 0]])
    assert store.longest_match(np.array([1, 2]), min_len=1, max_len=4).match_len == 1
    assert continuations(store, [1], 4, min_len=1, max_len=4) == []
    assert continuations(store, [0], 4, min_len=1, max_len=4) == [(1,)]


def test_a_document_of_one_token_is_found_nowhere() -> None:
    store = store_of([[1]])
    store.check_integrity()
    assert store.longest_match(np.array([1]), min_len=1, max_len=4).num_hits == 0


def test_chunks_of_a_shorter_match_are_left_out() -> None:
    store = store_of([[0, 1, 2], [2, 1, 0]], per_chunk=1)
    match = store.longest_match(np.array([0, 1]), min_len=1, max_len=4)
    assert (match.match_len, match.ranges) == (2, ((0, 1, 2),))
    match = store.longest_match(np.array([1, 1]), min_len=1, max_len=4)
    assert (match.match_len, match.num_hits) == (1, 2)


def test_too_many_hits_are_sampled_at_equal_distances() -> None:
    store = store_of([[0, 1, n % 3] for n in range(10)], per_chunk=4)
    match = store.longest_match(np.array([0, 1]), min_len=1, max_len=4)
    assert match.num_hits == 10
    everything = [(o + e) for _, o, ends in store.ends(match, 10) for e in ends.tolist()]
    sampled = [(o + e) for _, o, ends in store.ends(match, 4) for e in ends.tolist()]
    assert sampled == [everything[i] for i in (0, 2, 5, 7)]
    # Chunks without a sampled hit are left out.
    assert [ends.tolist() for _, _, ends in store.ends(match, 1)] == [everything[:1]]


def test_integrity_notices_a_swapped_order() -> None:
    array = SuffixArray.from_tokens(np.array([0, 1, 2, 1, 0, 1, 2]), 2)
    swapped = SuffixArray(array.tokens, array.order[[1, 0, 2]], array.starts)
    with pytest.raises(AssertionError, match="wrong order"):
        swapped.check_integrity()
    with pytest.raises(AssertionError, match="missing"):
        SuffixArray(array.tokens, array.order[[0, 0, 2]], array.starts).check_integrity()


def test_copies_answer_alike() -> None:
    store = store_of([[0, 1, 2, 0, 1, 1], [1, 2]])
    expected = continuations(store, [0, 1], 3, min_len=1, max_len=4)
    assert expected
    for other in (pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
        assert continuations(other, [0, 1], 3, min_len=1, max_len=4) == expected


def test_a_store_needs_chunks_of_its_vocabulary() -> None:
    with pytest.raises(ValueError, match="at least one chunk"):
        TokenStore([], 3)
    with pytest.raises(ValueError, match="chunk 0 has 3 tokens, vocab_size is 4"):
        TokenStore(store_of([[0, 1]]).chunks, 4)


def prefixes_by_hand(rows: list[tuple[int, ...]]) -> list[tuple[tuple[int, ...], int, int]]:
    """(prefix, count, first row), best first."""
    counts = Counter(row[:n] for row in rows for n in range(1, len(row) + 1))
    firsts = {p: next(i for i, row in enumerate(rows) if row[: len(p)] == p) for p in counts}
    order = sorted(counts, key=lambda p: (-counts[p], len(p), firsts[p]))
    return [(p, counts[p], firsts[p]) for p in order]


def test_kept_prefixes_equal_brute_force() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        rows = [
            tuple(rng.integers(0, 1 + rng.integers(3), 1 + rng.integers(5)).tolist())
            for _ in range(1 + rng.integers(40))
        ]
        behind = rng.integers(0, 4, (len(rows), 6))  # What stands behind an end means nothing.
        for row, ids in zip(behind, rows, strict=True):
            row[: len(ids) + 1] = [*ids, 3]
        for limit in (1, 4, 64):
            trie = CountTrie(behind.astype(np.uint16), end=3, limit=limit)
            trie.check_integrity()
            found = list(zip(trie.prefixes, trie.counts, trie.firsts, strict=True))
            assert found == prefixes_by_hand(rows)[:limit]


def test_integrity_notices_a_count_that_does_not_fit() -> None:
    trie = CountTrie(np.array([[0, 1], [0, 2]]), end=3, limit=8)
    trie.counts[1] = 2
    with pytest.raises(AssertionError, match="more than itself"):
        trie.check_integrity()


def test_candidates_of_a_small_store() -> None:
    """Behind 0 1 stand 2 2, 2 0 and 1: two in three continuations begin with 2."""
    store = store_of([[0, 1, 2, 2], [0, 1, 2, 0], [0, 1, 1]])
    candidates = propose(store, [0, 1])
    assert [(c.token_ids, c.count, round(c.score, 6)) for c in candidates] == [
        ((1, 2, 0), 1, 1.0),
        ((1, 2, 2), 1, 1.0),
        ((1, 1), 1, 0.333333),
    ]
    assert {c.match_len for c in candidates} == {2}
    assert {c.source for c in candidates} == {"suffix_array"}
    assert [c.recency for c in candidates] == [7, 2, 12]
    # Only the best prefix is kept: both of its continuations leave the kept set behind it.
    assert [(c.token_ids, c.count) for c in propose(store, [0, 1], limit=1)] == [((1, 2), 2)]


@given(documents_st, query_st, st.integers(1, 9), st.integers(1, 4))
def test_candidates_add_up_to_the_counts_of_prefixes(
    documents: list[list[int]], query: list[int], limit: int, num_tokens: int
) -> None:
    store = store_of(documents)
    bounds = {"min_len": 1, "max_len": 4}
    expected = prefixes_by_hand(continuations(store, query, num_tokens, **bounds))[:limit]
    candidates = propose(store, query, limit, min_ngram=1, max_ngram=4, num_tokens=num_tokens)
    added: Counter[tuple[int, ...]] = Counter()
    for candidate in candidates:
        assert candidate.token_ids[0] == query[-1]
        assert candidate.count >= 1
        for length in range(2, len(candidate.token_ids) + 1):
            added[candidate.token_ids[1:length]] += candidate.count
    assert added == {prefix: count for prefix, count, _ in expected}
    assert candidates == rank_candidates(candidates)


@given(documents_st, query_st, st.integers(1, 9))
def test_frequency_trie_keeps_the_most_frequent_prefixes(
    documents: list[list[int]], query: list[int], budget: int
) -> None:
    """Up to ties, which the builder breaks by rank instead of first occurrence."""
    store = store_of(documents)
    hits = continuations(store, query, 5, min_len=1, max_len=4)
    candidates = propose(store, query, min_ngram=1, max_ngram=4, num_tokens=5)
    tree = TREE_BUILDERS.create("trie", select="frequency").build(query[-1], candidates, budget)
    counts = {prefix: count for prefix, count, _ in prefixes_by_hand(hits)}
    paths = [
        tuple(tree.token_ids[tree.path_to(node)].tolist())[1:] for node in range(1, tree.num_nodes)
    ]
    found = sorted((-counts[path], len(path)) for path in paths)
    assert found == sorted((-count, len(prefix)) for prefix, count in counts.items())[:budget]


def test_fields_bound_what_is_looked_up_and_copied() -> None:
    store = store_of([[0, 1, 2, 0, 0, 1], [1, 1, 2, 1, 1, 1]])
    assert propose(store, [0, 1, 2])[0].match_len == 3
    assert propose(store, [0, 1, 2], max_ngram=2)[0].match_len == 2
    assert propose(store, [0, 1, 2], min_ngram=4) == []
    assert propose(store, [0, 1, 2], num_tokens=2)[0].token_ids == (2, 0, 0)
    both = propose(store, [0, 1, 2], max_ngram=2)
    assert len(both) == 2
    assert propose(store, [0, 1, 2], max_ngram=2, max_hits=1) != both


def test_proposing_without_a_store_says_so() -> None:
    retriever = RETRIEVERS.create("suffix_array")
    context = Context(ids_with_pending=np.array([0, 1]), num_prompt_tokens=1, vocab_size=3)
    with pytest.raises(RuntimeError, match="attach one first"):
        retriever.propose(context, 4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_ngram": 0}, "min_ngram must be ≥ 1, got 0"),
        ({"min_ngram": 3, "max_ngram": 2}, r"max_ngram must be ≥ min_ngram \(3\), got 2"),
        ({"num_tokens": 0}, r"num_tokens must be in \[1, 1024\], got 0"),
        ({"max_hits": 0}, r"max_hits must be in \[1, 1048576\], got 0"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RETRIEVERS.create("suffix_array", **fields)
