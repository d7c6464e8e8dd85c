"""N-gram trees: which n-grams are kept, what their trees hold, and what is proposed from them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.datastores.folder import DatastoreError, Header, read_header
from methods.datastores.frequent_ngrams import frequent_ngrams
from methods.datastores.ngram_trees import (
    TreeSettings,
    build_ngram_tree_store,
    ngram_trees,
    open_ngram_tree_store,
)
from methods.datastores.tokens import build_token_store, open_token_store
from primitives.retrievers.ngram_trees import NgramTreesRetriever
from primitives.retrievers.suffix_array import SuffixArrayRetriever
from primitives.structures.ngram_trees import ROOT, NgramTrees
from primitives.structures.suffix_array import TokenStore
from primitives.types import Candidate, Context
from support.ngram_stores import toy_ngram_trees
from support.token_stores import toy_documents

# 0 1 is followed by 2 3, by 2 4 and by 3; 1 2 by 3 and by 4.
DOCUMENTS = [[0, 1, 2, 3], [5, 0, 1, 2, 4], [0, 1, 3]]
VOCAB_SIZE = 6


def corpus(documents: Any = DOCUMENTS) -> TokenStore:
    return TokenStore.from_documents([documents], VOCAB_SIZE)


def stored_ngrams(trees: NgramTrees) -> set[tuple[int, ...]]:
    rows = trees.ngrams.tolist()
    return {tuple(t for t in row[::-1] if t != trees.vocab_size) for row in rows}


def context(*ids: int, eos_id: int = -1) -> Context:
    return Context(
        ids_with_pending=np.array(ids),
        num_prompt_tokens=len(ids) - 1,
        vocab_size=VOCAB_SIZE,
        eos_ids=frozenset({eos_id}),
    )


def propose(trees: NgramTrees, *ids: int, limit: int = 64, **fields: int) -> list[Candidate]:
    retriever = NgramTreesRetriever(**fields)
    retriever.attach(trees)
    return retriever.propose(context(*ids), limit)


def test_ngrams_that_occur_twice_with_a_token_behind_them_are_kept() -> None:
    trees = ngram_trees(corpus(), TreeSettings(max_ngram=3))
    trees.check_integrity()
    # 3 and 4 end documents; 5 0 and 0 1 3 occur once.
    assert stored_ngrams(trees) == {(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)}
    assert stored_ngrams(ngram_trees(corpus(), TreeSettings(min_ngram=2, min_count=3))) == {(0, 1)}


def test_a_tree_lists_what_followed_by_falling_count() -> None:
    trees = ngram_trees(corpus(), TreeSettings(max_ngram=3))
    tree = trees.longest_match(np.array([4, 0, 1]), min_len=1, max_len=5)
    assert (tree.match_len, tree.num_hits) == (2, 3)
    # 2 twice; then, once each, 3 at depth 1 before 2 3 and 2 4.
    assert tree.token_ids[:2] == [2, 3]
    assert sorted(tree.token_ids[2:]) == [3, 4]
    assert tree.parents == [ROOT, ROOT, 0, 0]
    assert tree.counts == [2, 1, 1, 1]


def test_candidates_carry_counts_and_estimated_probabilities() -> None:
    trees = ngram_trees(corpus(), TreeSettings(max_ngram=3))
    candidates = propose(trees, 4, 0, 1)
    assert [c.token_ids for c in candidates] == [(1, 2, 3), (1, 2, 4), (1, 3)]
    assert [c.score for c in candidates] == pytest.approx([1, 1, 1 / 3])
    assert [c.count for c in candidates] == [1, 1, 1]
    assert candidates[0].token_probs == pytest.approx((1, 2 / 3, 1 / 2))
    assert {c.match_len for c in candidates} == {2}
    # The best two nodes: 2 with both its occurrences, and 3.
    best = propose(trees, 4, 0, 1, limit=2)
    assert [(c.token_ids, c.count) for c in best] == [((1, 2), 2), ((1, 3), 1)]


def test_the_longest_stored_ngram_wins_within_the_bounds() -> None:
    trees = ngram_trees(corpus(), TreeSettings(max_ngram=3))
    assert propose(trees, 0, 1, 2)[0].match_len == 3
    assert propose(trees, 0, 1, 2, max_ngram=1)[0].match_len == 1
    assert propose(trees, 5, 2)[0].match_len == 1
    assert propose(trees, 5, 2, min_ngram=2) == []
    assert propose(trees, 2, 5) == []
    assert propose(trees, 1)[0].match_len == 1


def test_nothing_is_proposed_behind_eos() -> None:
    retriever = NgramTreesRetriever()
    retriever.attach(ngram_trees(corpus(), TreeSettings(max_ngram=3)))
    candidates = retriever.propose(context(4, 0, 1, eos_id=2), 64)
    assert [(c.token_ids, c.count) for c in candidates] == [((1, 2), 2), ((1, 3), 1)]


def test_the_budget_keeps_the_most_frequent_ngrams() -> None:
    """An n-gram of up to 2 tokens takes 18 bytes, a node 5. 0 and 1 occur 3 times, as does 0 1."""
    assert stored_ngrams(ngram_trees(corpus(), TreeSettings(max_ngram=2))) == {
        (0,), (1,), (2,), (0, 1), (1, 2)
    }  # fmt: skip
    settings = TreeSettings(max_ngram=2, num_tokens=1)
    sizes = {1: 18 + 5, 2: 18 + 5 + 18 + 2 * 5, 3: 18 + 5 + 2 * (18 + 2 * 5)}
    for num, max_bytes in sizes.items():
        for more, found in ((0, num), (-1, num - 1)):
            limited = TreeSettings(**{**vars(settings), "max_bytes": max_bytes + more})
            if found:
                assert len(ngram_trees(corpus(), limited).hashes) == found
            else:
                with pytest.raises(DatastoreError, match="a tree of at most 22 bytes"):
                    ngram_trees(corpus(), limited)


documents_st = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=6
)


@given(documents_st, st.integers(1, 2), st.integers(0, 2), st.integers(1, 3))
def test_frequent_ngrams_are_those_that_a_count_finds(
    documents: list[list[int]], min_ngram: int, more: int, min_count: int
) -> None:
    chunk = corpus(documents).chunks[0]
    found = list(
        frequent_ngrams(chunk, min_ngram=min_ngram, max_ngram=min_ngram + more, min_count=min_count)
    )
    counts = Counter(
        tuple(ids[end - n : end])
        for ids in documents
        for n in range(min_ngram, min_ngram + more + 1)
        for end in range(n, len(ids))
    )
    expected = {ngram: count for ngram, count in counts.items() if count >= min_count}
    ngrams = {}
    for run in found:
        for rank in range(run.low, run.high):
            end = chunk.order[rank]
            ngram = tuple(chunk.tokens[end - run.length : end].tolist())
            ngrams[ngram] = ngrams.get(ngram, 0) + 1
    assert ngrams == expected
    order = [(run.low - run.high, run.length) for run in found]
    assert order == sorted(order)


def test_counting_ends_with_the_last_length_that_is_frequent() -> None:
    """A count of longer n-grams would not end in a lifetime."""
    chunk, most = corpus().chunks[0], 10**12
    found = list(frequent_ngrams(chunk, min_ngram=1, max_ngram=most, min_count=2))
    assert [run.length for run in found] == [1, 1, 2, 1, 2, 3]
    assert list(frequent_ngrams(chunk, min_ngram=4, max_ngram=most, min_count=2)) == []


@given(documents_st, st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 12))
def test_proposals_are_those_of_rest_at_the_same_lengths(
    documents: list[list[int]], ids: list[int], limit: int
) -> None:
    """With all n-grams kept, the trees are what REST finds behind its longest match."""
    lengths = {"min_ngram": 1, "max_ngram": 3}
    try:
        trees = ngram_trees(corpus(documents), TreeSettings(min_count=1, **lengths))
    except DatastoreError:
        return  # No token has one behind it.
    trees.check_integrity()
    rest = SuffixArrayRetriever(**lengths)
    rest.attach(corpus(documents))
    expected = rest.propose(context(*ids), limit)
    found = propose(trees, *ids, limit=limit, **lengths)
    assert _facts(found) == _facts(expected)


def _facts(candidates: list[Candidate]) -> list[tuple[Any, ...]]:
    """All but the places, which trees do not know."""
    return sorted((c.token_ids, round(c.score, 9), c.count, c.match_len) for c in candidates)


def test_the_toy_store_is_sound_and_drops_some() -> None:
    trees = toy_ngram_trees()
    trees.check_integrity()
    total = {
        tuple(ids[i : i + n].tolist())
        for ids in toy_documents()
        for n in range(1, 5)
        for i in range(len(ids) - n)
    }
    assert stored_ngrams(trees) < total


def test_a_store_on_disk_gives_the_same_trees(tmp_path: Path) -> None:
    facts = {"vocab_size": VOCAB_SIZE, "tokenizer_hash": "t", "sources": [{"file": "a"}]}
    header = build_token_store(tmp_path / "tokens", DOCUMENTS, **facts)
    store, _ = open_token_store(tmp_path / "tokens")
    built = build_ngram_tree_store(
        tmp_path / "trees", store, TreeSettings(max_ngram=3), corpus=header, command="build it"
    )
    assert isinstance(built, Header)
    trees, opened = open_ngram_tree_store(tmp_path / "trees", tokenizer_hash="t")
    trees.check_integrity()
    assert opened == built == read_header(tmp_path / "trees", kind="ngram_trees")
    assert (opened.num_tokens, opened.num_documents) == (12, 3)
    assert (opened.sources, opened.command) == (({"file": "a"},), "build it")
    assert (opened.options["num_keys"], opened.options["max_ngram"]) == (6, 3)
    in_memory = ngram_trees(corpus(), TreeSettings(max_ngram=3))
    for ids in ([0], [0, 1], [0, 1, 2], [5, 2], [3]):
        assert _facts(propose(trees, *ids)) == _facts(propose(in_memory, *ids))
    with pytest.raises(DatastoreError, match="has kind 'ngram_trees', but 'tokens' is needed"):
        open_token_store(tmp_path / "trees")


def test_several_chunks_are_refused() -> None:
    store = TokenStore.from_documents([DOCUMENTS, DOCUMENTS], VOCAB_SIZE)
    with pytest.raises(DatastoreError, match=r"this corpus has 2: set datastore\.chunk_tokens"):
        ngram_trees(store, TreeSettings())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_count": 0}, r"datastore\.min_count must be ≥ 1, got 0"),
        ({"max_ngram": 1, "min_ngram": 2}, r"max_ngram must be ≥ min_ngram \(2\), got 1"),
        ({"max_ngram": 65}, r"datastore\.max_ngram must be ≤ 64, got 65"),
        ({"num_tokens": 1025}, r"datastore\.num_tokens must be ≤ 1024, got 1025"),
        ({"max_nodes": 256}, "max_nodes must be ≤ 255, got 256"),
        ({"max_hits": 65_536}, "max_hits must be ≤ 65535, got 65536"),
    ],
)
def test_bad_settings_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TreeSettings(**fields)


def test_no_store_is_said() -> None:
    with pytest.raises(RuntimeError, match="attach a store"):
        NgramTreesRetriever().propose(context(0), 1)
