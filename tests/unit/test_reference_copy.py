"""Copies from reference documents on hand-worked texts, and against the rule by brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.retrievers.reference_copy import ReferenceCopy
from primitives.structures.suffix_array import TokenStore
from primitives.types import Candidate, Context

VOCAB_SIZE = 128
texts = st.lists(st.integers(0, 2), max_size=30)


def propose(
    prompt: str | list[int],
    output: str | list[int],
    limit: int = 4,
    store: TokenStore | None = None,
    eos: str = "",
    **fields: Any,
) -> list[Candidate]:
    """Candidates behind an output whose last token is pending; letters stand for ids."""
    whole = [ord(t) if isinstance(t, str) else t for t in [*prompt, *output]]
    ids = np.array(whole, dtype=np.int64)
    ids.flags.writeable = False
    context = Context(
        ids_with_pending=ids,
        num_prompt_tokens=len(prompt),
        vocab_size=VOCAB_SIZE,
        eos_ids=frozenset(map(ord, eos)),
    )
    retriever = ReferenceCopy(**fields)
    if store is not None:
        retriever.attach(store)
    retriever.begin(context)
    return retriever.propose(context, limit)


def draft(prompt: str, output: str, **arguments: Any) -> str:
    """What is proposed behind pending, as letters."""
    return "".join(
        chr(i)
        for candidate in propose(prompt, output, **arguments)
        for i in candidate.token_ids[1:]
    )


def store_of(*chunks: list[str]) -> TokenStore:
    return TokenStore.from_documents(
        [[list(map(ord, document)) for document in chunk] for chunk in chunks], VOCAB_SIZE
    )


#         0123456789
PROMPT = "abcXabdYbcZ"


@pytest.mark.parametrize(
    ("output", "copied", "match_len"),
    [
        ("d", "YbcZ", 1),
        ("b", "cXabdYbcZ", 1),  # First at 1, not at 5 or 8.
        ("Ybc", "Z", 3),  # The longest wins over "bc", which is first at 1.
        ("Qbc", "XabdYbcZ", 2),
        ("bcQ", "", 0),
    ],
)
def test_first_occurrence_of_the_longest_match(output: str, copied: str, match_len: int) -> None:
    assert draft(PROMPT, output) == copied
    assert [c.match_len for c in propose(PROMPT, output)] == [match_len] * bool(copied)


def test_candidate_carries_pending_match_length_and_place() -> None:
    (candidate,) = propose(PROMPT, "Qbc", num_tokens=2)
    assert candidate.token_ids == tuple(map(ord, "cXa"))
    assert (candidate.match_len, candidate.score, candidate.recency) == (2, 2.0, 3)
    assert candidate.source == "reference_copy"


def test_the_prompt_is_no_part_of_the_query() -> None:
    """With the x of the prompt, the match would be "xa" and the copy Q."""
    assert draft("yaPxaQx", "a", num_tokens=1) == "P"


def test_the_output_is_never_copied_from() -> None:
    assert draft("xy", "abab") == ""
    assert draft("xyab", "cdab") == ""  # "ab" ends the prompt: nothing of it is left to copy.


def test_an_occurrence_at_the_end_does_not_count() -> None:
    (candidate,) = propose("abcab", "cab")
    assert (candidate.match_len, candidate.recency) == (2, 2)


def test_bounds_of_the_match() -> None:
    assert draft("bQabRabcS", "abc", num_tokens=1) == "S"
    assert draft("bQabRabcS", "ab", num_tokens=1) == "R"
    assert draft("bQabRabcS", "ab", max_ngram=1, num_tokens=1) == "Q"
    assert draft("bQabRabcS", "ab", min_ngram=3) == ""
    assert draft("bQabRabcS", "Rabc", min_ngram=3, max_ngram=3) == "S"


def test_eos_ends_the_draft() -> None:
    assert draft(PROMPT, "Qbc", eos="a") == "Xa"


def test_no_room_gives_no_candidate() -> None:
    assert propose(PROMPT, "d", limit=0) == []
    assert propose("", "d") == []


def test_store_is_copied_from_its_first_document_with_the_longest_match() -> None:
    store = store_of(["zab", "xaby"], ["yabc", "yabd", "Qyab"])
    arguments: dict[str, Any] = {"store": store, "source": "datastore"}
    # Behind "ab" in document 0 stands nothing; the first that goes on is document 1.
    assert draft("yab?", "ab", **arguments) == "y"
    assert draft("", "yab", **arguments) == "c"
    (candidate,) = propose("", "yab", **arguments)
    # Documents 0 and 1 with their ends take 4 + 5 positions.
    assert (candidate.match_len, candidate.recency) == (3, 9 + 3)
    assert draft("abc", "Z", **arguments) == ""


def test_a_copy_stops_at_the_end_of_its_document() -> None:
    store = store_of(["abcd", "efgh"])
    assert draft("", "b", store=store, source="datastore") == "cd"
    assert draft("", "b", store=store, source="datastore", num_tokens=1) == "c"


def test_only_a_datastore_can_be_attached() -> None:
    assert ReferenceCopy().wanted_datastore is None
    assert ReferenceCopy(source="datastore").wanted_datastore == "tokens"
    with pytest.raises(TypeError, match="'reference_copy' searches no datastore"):
        ReferenceCopy().attach(store_of(["ab"]))
    with pytest.raises(RuntimeError, match="'reference_copy' searches a token store: attach one"):
        propose("", "a", source="datastore")


@given(st.lists(texts.filter(len), min_size=1, max_size=4), texts, st.integers(1, 4), st.data())
def test_both_sources_follow_the_rule(
    documents: list[list[int]], output: list[int], max_ngram: int, data: st.DataObject
) -> None:
    output = [*output, 0]
    min_ngram = data.draw(st.integers(1, max_ngram))
    fields = {"min_ngram": min_ngram, "max_ngram": max_ngram, "num_tokens": 3}
    split = data.draw(st.integers(1, len(documents)))
    groups = [group for group in (documents[:split], documents[split:]) if group]
    store = TokenStore.from_documents(groups, VOCAB_SIZE)
    for candidates, searched in (
        (propose(documents[0], output, **fields), documents[:1]),
        (propose([1], output, store=store, source="datastore", **fields), documents),
    ):
        assert [c.token_ids[1:] for c in candidates] == by_brute_force(searched, output, **fields)


def by_brute_force(
    documents: list[list[int]], output: list[int], min_ngram: int, max_ngram: int, num_tokens: int
) -> list[tuple[int, ...]]:
    for ngram in range(min(max_ngram, len(output)), min_ngram - 1, -1):
        for document in documents:
            for end in range(ngram, len(document)):
                if document[end - ngram : end] == output[-ngram:]:
                    return [tuple(document[end : end + num_tokens])]
    return []


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
        ReferenceCopy(**fields)  # type: ignore[arg-type]
