"""Suffix automata against brute force, and SAM's retriever on hand-worked texts."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.retrievers.suffix_automaton import SuffixAutomatonRetriever
from primitives.structures import suffix_automaton
from primitives.structures.corpus_automaton import CorpusAutomaton
from primitives.structures.suffix_array import TokenStore
from primitives.structures.suffix_automaton import SuffixAutomaton
from primitives.types import Candidate, Context, DraftTree, StepOutcome

ids_st = st.lists(st.integers(0, 2), max_size=14)
VOCAB = 128


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def automaton_of(*sequences: str) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for number, text in enumerate(sequences):
        if number:
            automaton.end_sequence()
        automaton.extend(letters(text))
    return automaton


def propose(
    text: str, documents: tuple[str, ...] = (), limit: int = 16, eos: str = "", **fields: Any
) -> list[Candidate]:
    """Candidates for a text whose last token is pending, with a corpus if there are documents."""
    retriever = SuffixAutomatonRetriever(use_static=bool(documents), **fields)
    if documents:
        retriever.attach(TokenStore.from_documents([[letters(d) for d in documents]], VOCAB))
    ids = np.array(letters(text), dtype=np.int64)
    context = Context(
        ids_with_pending=ids,
        num_prompt_tokens=len(ids) - 1,
        vocab_size=VOCAB,
        eos_ids=frozenset(map(ord, eos)),
    )
    retriever.begin(context)
    return retriever.propose(context, limit)


def drafts(text: str, documents: tuple[str, ...] = (), **fields: Any) -> list[str]:
    """What is proposed behind pending, as letters."""
    return ["".join(map(chr, c.token_ids[1:])) for c in propose(text, documents, **fields)]


def test_states_of_a_small_text() -> None:
    """The picture of the module."""
    automaton = automaton_of("abba")
    assert automaton.num_states == 6
    links = [automaton.link(state) for state in range(1, 6)]
    assert links == [(0, 0), (4, 1), (4, 1), (0, 0), (1, 1)]
    assert [automaton.first_end(state) for state in range(1, 6)] == [1, 2, 3, 2, 4]
    assert automaton.match_of_end() == (1, 1)
    automaton.check_integrity()


@settings(max_examples=60)
@given(st.lists(ids_st, max_size=3), ids_st)
def test_matches_equal_brute_force(sequences: list[list[int]], query: list[int]) -> None:
    automaton = SuffixAutomaton()
    text: list[int] = []
    for ids in sequences:
        automaton.extend(ids[:5])
        automaton.extend(ids[5:])
        automaton.end_sequence()
        text += [*ids, -1]
    automaton.check_integrity()
    match = (0, 0)
    for stop in range(len(query)):
        match = automaton.track(match, [query[stop]])
        ends = [
            (n, end)
            for n in range(1, stop + 2)
            for end in range(n, len(text) + 1)
            if text[end - n : end] == query[stop + 1 - n : stop + 1]
        ]
        longest = max((n for n, _ in ends), default=0)
        assert match[1] == longest
        if longest:
            assert automaton.first_end(match[0]) == min(end for n, end in ends if n == longest)


def test_match_of_the_end_is_the_longest_one_that_comes_twice() -> None:
    assert automaton_of("").match_of_end() == (0, 0)
    assert automaton_of("abc").match_of_end()[1] == 0
    assert automaton_of("aaaa").match_of_end()[1] == 3
    assert automaton_of("abcxbc").match_of_end()[1] == 2


def test_a_second_sequence_shares_the_states_of_the_first() -> None:
    once, twice = automaton_of("abcab"), automaton_of("abcab", "abcab")
    assert twice.num_states == once.num_states
    # "b" alone stands before the end and before "x": it needs a state of its own.
    assert automaton_of("ab", "b").num_states == automaton_of("ab").num_states + 1
    twice.check_integrity()


def test_room_grows_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(0).integers(0, 3, 100)
    automaton = SuffixAutomaton()
    for token_id in ids.tolist():
        automaton.extend([token_id])
    assert automaton.text.tolist() == ids.tolist()
    automaton.check_integrity()
    monkeypatch.setattr(suffix_automaton, "MAX_TOKENS", 200)
    with pytest.raises(ValueError, match="holds up to 200 tokens, got 201"):
        automaton.extend([0] * 101)


def test_a_corpus_that_is_too_large_is_refused_before_memory_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suffix_automaton, "MAX_TOKENS", 200)
    assert CorpusAutomaton([[0] * 199]).num_states
    with pytest.raises(ValueError, match="holds up to 200 tokens, got 201"):
        CorpusAutomaton([[0] * 99, [0] * 100])


def test_copies_go_their_own_ways() -> None:
    automaton = automaton_of("abcab")
    for other in (copy.deepcopy(automaton), pickle.loads(pickle.dumps(automaton))):
        other.extend(letters("cab"))
        other.check_integrity()
    assert automaton.text.tolist() == letters("abcab")


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=4))
def test_counts_of_a_corpus_equal_brute_force(documents: list[list[int]]) -> None:
    corpus = CorpusAutomaton(documents)
    corpus.check_integrity()
    counts = Counter(
        tuple(ids[i:j])
        for ids in documents
        for i in range(len(ids))
        for j in range(i, len(ids) + 1)
    )
    for string, count in counts.items():
        if string:
            state, length = corpus.track((0, 0), string)
            assert (length, corpus.count(state)) == (len(string), count)
    assert copy.deepcopy(corpus) is corpus


def test_integrity_notices_damage() -> None:
    automaton = automaton_of("abcab")
    automaton.text[1] = ord("z")
    with pytest.raises(AssertionError):
        automaton.check_integrity()


def test_the_first_occurrence_of_the_longest_match_is_copied() -> None:
    # "bc" comes first at 1, and again at 5; "abc" comes once, at 4, with "y" behind it.
    assert drafts("xbcQabcyabc") == ["yabc"]
    # "c" alone would be found at 1.
    (candidate,) = propose("xcQbcRbc")
    assert candidate.token_ids == tuple(letters("cRbc"))
    assert (candidate.match_len, candidate.recency, candidate.source) == (2, 5, "dynamic")
    assert (candidate.score, candidate.token_probs) == (2.0, ())
    # "bc" was at 1 and at 4: the first one counts.
    assert drafts("bcQbcRbc")[0][0] == "Q"


def test_length_grows_with_the_match() -> None:
    text = "ab123456789ab"
    assert drafts(text, alpha=1.0) == ["12"]
    assert drafts(text, alpha=2.9) == ["12345"]  # floor(2.9 * 2)
    assert drafts(text, max_tokens=4) == ["123"]
    assert drafts(text) == ["12345678"]
    assert drafts(text, alpha=0.4) == []


def test_no_match_or_no_room_gives_nothing() -> None:
    assert drafts("abcd") == []
    assert drafts("a") == []
    assert propose("abab", limit=0) == []


def test_nothing_is_drafted_behind_an_eos() -> None:
    assert drafts("ab1.2ab", eos=".") == ["1."]


def test_combined_needs_a_match_of_the_threshold() -> None:
    combined = {"rule": "combined", "num_tokens": 4}
    assert drafts("abcd1234abcd", **combined) == []
    assert drafts("abcd1234abcd", **combined, len_threshold=4) == ["123"]


def test_combined_takes_a_shorter_match_with_more_behind_it() -> None:
    # "ababab" matches at its end 6, with "ab" behind it. The links lead to "abab" at 4, "ab" at 2.
    text = "abababab"
    fields = {"rule": "combined", "len_threshold": 2}
    for num_tokens, match_len, draft in ((3, 6, "ab"), (4, 4, "aba"), (6, 2, "ababa")):
        (candidate,) = propose(text, num_tokens=num_tokens, **fields)
        assert (candidate.match_len, candidate.token_ids[1:]) == (match_len, tuple(letters(draft)))
    # If none has enough behind it, the one that has most is the shortest.
    (candidate,) = propose(text, num_tokens=12, **fields)
    assert (candidate.match_len, len(candidate.token_ids)) == (2, 7)


def test_the_corpus_drafts_a_tree_of_the_most_probable_nodes() -> None:
    """Behind "ab" stand c (2 of 4), then d once and e once; x (1 of 4); one document ends there."""
    documents = ("abcd", "abce", "abx", "ab")
    fields = {"len_bias": 0, "alpha": 2.0}
    candidates = propose("Qab", documents, **fields)
    # Probabilities of paths: c 1/2, x 1/4, cd 1/4, ce 1/4: with 4 nodes all are there.
    # Of the two that score the same, the one that is later in the corpus comes first.
    assert [c.token_ids for c in candidates] == [tuple(letters(t)) for t in ("bce", "bcd", "bx")]
    assert [c.score for c in candidates] == [0.75, 0.75, 0.25]
    assert [c.token_probs for c in candidates] == [(1.0, 0.5, 0.5)] * 2 + [(1.0, 0.25)]
    assert {(c.match_len, c.source, c.count) for c in candidates} == {(2, "static", 1)}
    # Ties of the path's probability go to the smaller depth: x comes before cd.
    assert drafts("Qab", documents, len_bias=0, alpha=1.0) == ["c", "x"]
    assert drafts("Qab", documents, len_bias=0, alpha=2.0, width=1) == ["cd"]


def test_a_corpus_must_match_longer_by_more_than_the_bias() -> None:
    documents = ("abcdZZZZ",)
    text = "cdYYY-abcd"  # Two tokens match in the text, four in the corpus.
    assert drafts(text, documents, len_bias=2)[0][0] == "Y"
    (candidate,) = propose(text, documents, len_bias=1, alpha=1.0)
    # The biased length, 3, decides how many tokens are drafted.
    assert (candidate.token_ids, candidate.match_len) == (tuple(letters("dZZZ")), 4)


def test_combined_with_a_corpus_stops_at_the_end_of_a_document() -> None:
    fields = {"rule": "combined", "len_threshold": 3, "len_bias": 0, "num_tokens": 6}
    assert drafts("Qabc", ("abcXY", "dddddd"), **fields) == ["XY"]
    assert drafts("Qabc", ("zbc12345", "abcX"), **fields) == ["12345"]


def test_combined_does_not_leave_a_match_for_a_shorter_one_with_less_behind_it() -> None:
    """All of "abcdef" stands in the second document with five tokens behind it, "ef" first in the
    first one with none."""
    fields = {"rule": "combined", "len_bias": 0, "num_tokens": 9}
    documents = ("zef", "abcdef12345")
    (candidate,) = propose("Qabcdef", documents, **fields)
    assert (candidate.match_len, candidate.token_ids) == (6, tuple(letters("f12345")))


def test_it_learns_what_is_committed() -> None:
    retriever, text = SuffixAutomatonRetriever(), letters("abcXabc")
    for stop in range(2, len(text) + 1):
        ids = np.array(text[:stop], dtype=np.int64)
        context = Context(ids_with_pending=ids, num_prompt_tokens=1, vocab_size=VOCAB)
        if stop == 2:
            retriever.begin(context)
        else:
            tree = DraftTree.root_only(text[stop - 2])
            retriever.observe(
                StepOutcome(token_ids=ids[-2:-1], pending_id=text[-1], tree=tree, path=(0,))
            )
    (candidate,) = retriever.propose(context, 4)
    assert candidate.token_ids == tuple(letters("cXabc"))
    retriever.check_integrity()


def test_a_corpus_has_to_be_there_and_wanted() -> None:
    context = Context(ids_with_pending=np.array([1, 2]), num_prompt_tokens=1, vocab_size=8)
    with pytest.raises(RuntimeError, match="has no datastore"):
        SuffixAutomatonRetriever(use_static=True).begin(context)
    with pytest.raises(TypeError, match="searches no datastore"):
        SuffixAutomatonRetriever().attach(TokenStore.from_documents([[[1]]], 8))
    assert SuffixAutomatonRetriever().wanted_datastore is None
    assert SuffixAutomatonRetriever(use_static=True).wanted_datastore == "tokens"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 1}, r"max_tokens must be in \[2, 1024\], got 1"),
        ({"num_tokens": 1}, r"num_tokens must be in \[2, 1024\], got 1"),
        ({"width": 0}, r"width must be in \[1, 64\], got 0"),
        ({"len_threshold": 0}, "len_threshold must be ≥ 1, got 0"),
        ({"alpha": 0.0}, "alpha must be > 0 and finite, got 0.0"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SuffixAutomatonRetriever(**fields)
