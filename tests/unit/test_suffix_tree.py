"""Suffix trees against brute force, and SuffixDecoding's retriever on hand-worked texts."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.retrievers.suffix_tree import SuffixTreeRetriever
from primitives.structures.suffix_tree import SuffixTree
from primitives.types import Candidate, Context, DraftTree, StepOutcome

Ids = tuple[int, ...]
sequence_st = st.lists(st.integers(0, 2), max_size=12)
budget_st = st.fixed_dictionaries(
    {
        "num_tokens": st.integers(1, 6),
        "factor": st.sampled_from([0.5, 1.0, 2.0]),
        "offset": st.sampled_from([-1.0, 0.0, 1.5]),
        "min_prob": st.sampled_from([0.0, 0.15, 0.4]),
    }
)


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def tree_of(sequences: list[list[int]], max_depth: int) -> SuffixTree:
    tree = SuffixTree(max_depth)
    for number, ids in enumerate(sequences):
        if number:
            tree.end_sequence()
        tree.extend(ids[:4])
        tree.extend(ids[4:])
    return tree


def counts_of(sequences: list[list[int]]) -> Counter[Ids]:
    return Counter(
        tuple(ids[i:j])
        for ids in sequences
        for i in range(len(ids))
        for j in range(i + 1, len(ids) + 1)
    )


def scores_by_hand(
    counts: Counter[Ids], match: Ids, below: int, num: int, min_prob: float, is_tree: bool
) -> float:
    """The score of one match's draft, from the paper's rule."""
    paths: list[tuple[float, Ids]] = [(1.0, match)]
    score, queue = 0.0, paths
    for _ in range(max(num, 0)):
        grown = []
        if queue:
            prob, string = queue.pop(0)
            children = [s for s in counts if s[:-1] == string and len(s) <= len(match) + below]
            grown = [(prob * counts[s] / counts[string], s) for s in children]
        if not is_tree:
            queue = sorted(grown, reverse=True)[:1]
        else:
            queue = sorted([*queue, *grown], key=lambda item: (-item[0], len(item[1])))
        queue = [item for item in queue if item[0] >= min_prob - 1e-12]
        if not queue:
            break
        score += queue[0][0]
    return score


@settings(max_examples=60)
@given(
    st.lists(sequence_st, min_size=1, max_size=4), st.integers(1, 6), st.lists(st.integers(0, 2))
)
def test_counts_equal_brute_force_with_forgetting_and_retracting(
    sequences: list[list[int]], max_depth: int, retracted: list[int]
) -> None:
    tree = tree_of(sequences, max_depth)
    tree.check_integrity()
    for string, count in counts_of(sequences).items():
        state, length = tree.longest_match(string[:max_depth])
        assert length == min(len(string), max_depth)
        assert len(string) > max_depth or tree.count(state) == count
    for token_id in retracted:
        tree.extend([token_id])
        tree.retract()
    tree.extend([1])
    tree.check_integrity()
    while tree.num_sequences > 1:
        tree.forget_oldest()
        tree.check_integrity()


@settings(max_examples=60)
@given(
    st.lists(sequence_st, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(2, 6),
    budget_st,
)
def test_tree_drafts_score_as_the_rule_says(
    sequences: list[list[int]], context: list[int], max_depth: int, budget: dict[str, Any]
) -> None:
    """By brute force over all matches; trees of the most probable nodes have but one score."""
    tree, counts = tree_of(sequences, max_depth), counts_of(sequences)
    context = context[1 - max_depth :]
    expected, expected_len = 0.0, 0
    for length in range(1, len(context) + 1):
        match = tuple(context[-length:])
        if match not in counts:
            break
        room = int(budget["factor"] * length + budget["offset"])
        num = min(budget["num_tokens"], room)
        score = scores_by_hand(counts, match, max_depth - length, num, budget["min_prob"], True)
        if score and score >= expected - 1e-12:
            expected, expected_len = score, length
    nodes = tree.draft(tree.longest_match(context), **budget, is_tree=True)
    assert abs(nodes.score - expected) < 1e-9
    assert nodes.match_len == expected_len
    assert abs(sum(nodes.probs[:, 1]) - nodes.score) < 1e-9
    for path in nodes.paths():
        string = (*context[len(context) - nodes.match_len :], *path.token_ids)
        assert path.num_occurrences == counts[string]
        parents = [string[: len(string) - n] for n in range(len(path.token_ids), 0, -1)]
        probs = [counts[string[: len(parent) + 1]] / counts[parent] for parent in parents]
        assert np.allclose(path.token_probs, probs)


@settings(max_examples=60)
@given(st.lists(sequence_st, min_size=1, max_size=3), st.integers(2, 6), budget_st)
def test_path_drafts_follow_the_most_frequent_child_that_was_seen_last(
    sequences: list[list[int]], max_depth: int, budget: dict[str, Any]
) -> None:
    tree, counts = tree_of(sequences, max_depth), counts_of(sequences)
    last = {}
    for number, ids in enumerate(sequences):
        for i in range(len(ids)):
            for j in range(i + 1, len(ids) + 1):
                last[tuple(ids[i:j])] = max(last.get(tuple(ids[i:j]), (0, 0)), (number, j))
    for match in [string for string in counts if len(string) < max_depth]:
        # A budget for this match only: all shorter ones get no token.
        offset = 3.0 - 3.0 * len(match)
        nodes = tree.draft(
            tree.longest_match(match), num_tokens=3, factor=3.0, offset=offset,
            min_prob=budget["min_prob"], is_tree=False,
        )  # fmt: skip
        string, prob, expected = match, 1.0, []
        while len(string) < min(max_depth, len(match) + 3):
            children = [s for s in counts if s[:-1] == string]
            if not children:
                break
            best = max(children, key=lambda s: (counts[s], last[s]))
            prob *= counts[best] / counts[string]
            if prob < budget["min_prob"]:
                break
            string = best
            expected.append(best[-1])
        if nodes.match_len in (0, len(match)):
            assert nodes.token_ids.tolist() == expected


def test_forgotten_sequences_leave_no_memory_behind() -> None:
    tree = SuffixTree(4)
    for number in range(200):
        tree.extend([number % 7, number % 5, 3] * 10)
        tree.end_sequence()
        if number >= 2:
            tree.forget_oldest()
    assert tree.num_sequences == 3
    assert len(tree.text) <= 31 * 6
    tree.check_integrity()


def test_integrity_notices_damage() -> None:
    tree = tree_of([letters("abcabd")], 4)
    tree.text[0] = ord("z")
    with pytest.raises(AssertionError, match="ends with 122 is lost"):
        tree.check_integrity()


class Session:
    """A retriever that is told one request after the other, token by token."""

    def __init__(self, **fields: Any) -> None:
        self.retriever = SuffixTreeRetriever(**fields)

    def request(self, prompt: str, output: str) -> list[Candidate]:
        """What is proposed when the last token of the output is pending."""
        ids = np.array(letters(prompt + output), dtype=np.int64)
        for stop in range(len(prompt) + 1, len(ids) + 1):
            self.context = Context(
                ids_with_pending=ids[:stop], num_prompt_tokens=len(prompt), vocab_size=128
            )
            if stop == len(prompt) + 1:
                self.retriever.begin(self.context)
            else:
                tree = DraftTree.root_only(int(ids[stop - 2]))
                self.retriever.observe(
                    StepOutcome(
                        token_ids=ids[stop - 2 : stop - 1],
                        pending_id=int(ids[stop - 1]),
                        tree=tree,
                        path=(0,),
                    )
                )
            self.retriever.check_integrity()
        return self.retriever.propose(self.context, 8)


def as_text(candidate: Candidate) -> str:
    return "".join(map(chr, candidate.token_ids))


def test_local_draft_counts_the_end_of_the_text() -> None:
    """Behind "bc": twice "d", and the end itself, so d has 2/3; e and Q have 1/2 each behind it."""
    (candidate,) = Session().request("abcdeabcdQa", "bc")
    # The match "abc" (3 of it) gives d 2/3, then Q or e 1/2: 1/3 each, 1/3 again for what follows.
    assert as_text(candidate) == "cdQa"
    assert candidate.match_len == 3
    assert candidate.token_probs == pytest.approx((1.0, 2 / 3, 1 / 2, 1.0))
    assert candidate.score == pytest.approx(2 / 3 + 1 / 3 + 1 / 3)
    assert (candidate.source, candidate.count, candidate.recency) == ("local", 1, 8)


def test_budget_grows_with_the_match() -> None:
    text = ("abcdefgh-", "abc")
    assert as_text(Session().request(*text)[0]) == "cdef"
    assert as_text(Session(factor=2.0).request(*text)[0]) == "cdefgh-"
    assert as_text(Session(offset=-2.0).request(*text)[0]) == "cd"
    assert as_text(Session(num_tokens=2).request(*text)[0]) == "cde"
    assert as_text(Session(max_depth=4).request(*text)[0]) == "cde"  # "bc" may draft two.
    assert Session(factor=0.0).request(*text) == []
    assert Session(min_token_prob=0.6).request(*text) == []  # Once before: 1/2.


def test_outputs_of_earlier_requests_are_drafted_and_prompts_are_not() -> None:
    session = Session()
    session.request("prompt", "xyzw")
    # Twice in the global tree: in the earlier output and at the end of this one.
    (candidate,) = session.request("q", "xyz")
    assert (as_text(candidate), candidate.source) == ("zw", "global")
    assert candidate.token_probs == (1.0, 0.5)
    assert session.request("q", "pr") == []
    session.retriever.reset()
    assert session.request("q", "xyz") == []


def test_current_output_may_be_kept_out_of_the_global_tree() -> None:
    session = Session(include_current=False)
    session.request("prompt", "xyzw")
    (candidate,) = session.request("q", "xyz")
    assert candidate.token_probs == (1.0, 1.0)
    # Behind "xy" came "z" in two earlier outputs, and "w" behind that in one of them.
    (candidate,) = session.request("q", "xy")
    assert (as_text(candidate), candidate.token_probs) == ("yzw", (1.0, 1.0, 0.5))


@pytest.mark.parametrize(("include_current", "num"), [(True, 2), (False, 1)])
def test_oldest_outputs_are_forgotten_first(include_current: bool, num: int) -> None:
    session = Session(max_cached_requests=num, include_current=include_current)
    for output in ("abcd", "efgh"):
        session.request("q", output)
    assert session.request("q", "abc") == []
    session.request("q", "efgh")
    assert as_text(session.request("q", "efg")[0]) == "gh"


def test_without_a_cache_nothing_is_remembered() -> None:
    session = Session(max_cached_requests=0)
    assert not session.retriever.is_cross_request
    session.request("q", "xyzw")
    assert session.request("q", "xyz") == []


def test_tree_draft_has_all_frequent_children() -> None:
    session = Session(draft="tree", factor=4.0, include_current=False)
    for output in ("abc1", "abc2", "abc2", "abd"):
        session.request("q", output)
    candidates = session.request("q", "ab")
    # c 3/4; then 2 (2/3), d 1/4, and 1 (1/3 of 3/4): two nodes of 1/4, the shallower one first.
    assert [as_text(c) for c in candidates] == ["bc2", "bc1", "bd"]
    assert [c.score for c in candidates] == pytest.approx([1.25, 1.0, 0.25])
    assert [c.count for c in candidates] == [2, 1, 1]
    assert candidates[1].token_probs == pytest.approx((1.0, 0.75, 1 / 3))
    assert len(session.retriever.propose(session.context, 2)) == 2


def test_nothing_stands_behind_an_eos() -> None:
    session = Session()
    session.request("abc.def-", "abc")
    context = session.context
    with_eos = Context(
        ids_with_pending=context.ids_with_pending,
        num_prompt_tokens=context.num_prompt_tokens,
        vocab_size=128,
        eos_ids=frozenset(letters(".")),
    )
    (candidate,) = session.retriever.propose(with_eos, 8)
    assert (as_text(candidate), candidate.token_probs) == ("c.", (1.0, 0.5))
    assert candidate.score == 0.5


def test_an_alternative_takes_the_place_of_pending() -> None:
    """A relaxed verifier keeps "y" although "x" was pending: nothing is left of x."""
    session = Session()
    session.request("ab", "x")
    tree = DraftTree.from_nodes(letters("xyc"), [-1, -1, 1])
    outcome = StepOutcome(
        token_ids=np.array(letters("yc")), pending_id=ord("y"), tree=tree, path=(1, 2)
    )
    session.retriever.observe(outcome)
    session.retriever.check_integrity()
    expected = Session()
    expected.request("ab", "ycy")
    (candidate,) = session.retriever.propose(expected.context, 8)
    assert as_text(candidate) == "yc"
    for one, other in zip(
        (session.retriever._local, session.retriever._global),
        (expected.retriever._local, expected.retriever._global),
        strict=True,
    ):
        assert one is not None
        assert other is not None
        assert one.text.tolist() == other.text.tolist()


def test_copies_go_their_own_ways() -> None:
    session = Session()
    session.request("abc", "abc")
    other = copy.deepcopy(session)
    other.request("x", "yyyy")
    session.retriever.check_integrity()
    assert as_text(session.retriever.propose(session.context, 8)[0]) == "cabc"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_depth": 1}, "max_depth must be ≥ 2, got 1"),
        ({"num_tokens": 0}, r"num_tokens must be in \[1, 1024\], got 0"),
        ({"max_cached_requests": -1}, "max_cached_requests must be ≥ 0, got -1"),
        ({"factor": -1.0}, "factor must be ≥ 0 and finite, got -1.0"),
        ({"offset": float("inf")}, "offset must be finite, got inf"),
        ({"min_token_prob": 1.5}, r"min_token_prob must be in \[0, 1\], got 1.5"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SuffixTreeRetriever(**fields)
