"""Loose trie as pictures, and against a trie of dictionaries."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from primitives.registry import TREE_BUILDERS
from primitives.types import Candidate, DraftTree
from support.scenes import as_lists, token_paths

P = 1  # Pending.


def build(candidates: list[Candidate], budget: int = 64) -> DraftTree:
    return TREE_BUILDERS.create("loose_trie").build(P, candidates, budget)


def candidate(score: float, *token_ids: int, source: str = "") -> Candidate:
    return Candidate(token_ids=token_ids, score=score, match_len=int(score), source=source)


NEAR = candidate(3.0, P, 2, 3, 4, source="near")
FAR = candidate(2.0, P, 2, 5, source="far")
OTHER = candidate(1.0, P, 6, 7, source="other")


def test_neighbours_in_sorted_order_share_their_prefix() -> None:
    # Sorted: 1 2 3 4 | 1 2 5 (shares 2) | 1 6 7 (shares 1); numbered by rank, then by depth.
    tree = build([OTHER, FAR, NEAR])
    assert str(tree) == (
        "0: token 1\n"
        "  1: token 2\n"
        "    2: token 3\n"
        "      3: token 4\n"
        "    4: token 5\n"
        "  5: token 6\n"
        "    6: token 7"
    )
    assert tree.sources == ("", "near", "near", "near", "far", "other", "other")
    assert tree.match_lens == (0, 3, 3, 3, 2, 1, 1)


def test_a_node_scores_as_much_as_the_best_candidate_through_it() -> None:
    # The best candidate sorts last: its prefix 1 2 was first met with a worse one.
    worse, best = candidate(0.0, P, 2, 3, source="worse"), candidate(9.0, P, 2, 8, source="best")
    tree = build([worse, best])
    assert tree.token_ids.tolist() == [P, 2, 8, 3]
    assert tree.sources == ("", "best", "best", "worse")


def test_low_scores_leave_first() -> None:
    assert build([NEAR, FAR, OTHER], 4).token_ids.tolist() == [P, 2, 3, 4, 5]
    assert build([NEAR, FAR, OTHER], 2).token_ids.tolist() == [P, 2, 3]
    assert build([NEAR, FAR, OTHER], 0).token_ids.tolist() == [P]


def test_deep_nodes_leave_first_where_scores_tie() -> None:
    # Both score 1: depth 1 of both (2 and 6), then depth 2 of the one that ranks first.
    first, second = candidate(1.0, P, 2, 3, 4), candidate(1.0, P, 6, 7, 8)
    assert str(build([second, first], 3)) == (
        "0: token 1\n"
        "  1: token 2\n"
        "    2: token 3\n"
        "  3: token 6"
    )  # fmt: skip


def test_pending_is_node_0_beside_its_alternatives() -> None:
    tree = build([candidate(5.0, 9, 2), candidate(1.0, P, 6), candidate(0.0, 0, 4)])
    assert str(tree) == (
        "0: token 1\n"
        "  3: token 6\n"
        "1: token 9\n"
        "  2: token 2\n"
        "4: token 0\n"
        "  5: token 4"
    )  # fmt: skip
    only_alternatives = build([candidate(5.0, 9, 2)])
    assert only_alternatives.token_ids.tolist() == [P, 9, 2]
    assert only_alternatives.parents.tolist() == [-1, -1, 1]


def sampled(score: float, *token_ids: int) -> Candidate:
    """Row i of the distributions holds 10 * depth + the parent's token, to be told apart."""
    rows = [[10.0 * depth + [0, *token_ids][depth]] * 2 for depth in range(len(token_ids))]
    return Candidate(token_ids=token_ids, score=score, draft_probs=torch.tensor(rows))


def test_sampled_siblings_keep_the_order_of_the_draw() -> None:
    """Neither their ids nor their scores move them, whatever the budget leaves out."""
    drawn = [sampled(0.0, P, 4, 3), sampled(2.0, P, 2, 3), sampled(1.0, P, 4, 5)]
    tree = build(drawn)
    assert tree.token_ids.tolist() == [P, 4, 3, 2, 3, 5]
    assert [row[0] for row in as_lists(tree.draft_probs)] == [0, 11, 24, 11, 22, 24]
    assert build(drawn, 2).token_ids.tolist() == [P, 4, 2]


def test_mix_of_sampled_and_deterministic_drafts_is_refused() -> None:
    with pytest.raises(ValueError, match="with and without draft_probs cannot share a tree"):
        build([sampled(1.0, P, 2), NEAR])


# Scores, first tokens and tails; candidates are made of them in the tests.
drafts = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from([P, P, P, 2]), st.lists(st.integers(0, 3), max_size=6)
    ),
    max_size=12,
)
Drafts = list[tuple[int, int, list[int]]]


def candidates_of(drafts: Drafts) -> list[Candidate]:
    return [candidate(float(score), first, *tail) for score, first, tail in drafts]


def dictionary_trie(candidates: list[Candidate]) -> dict[tuple[int, ...], float]:
    """All prefixes of candidates (pending always), with the best score through each."""
    best: dict[tuple[int, ...], float] = {(P,): float("-inf")}
    for c in candidates:
        for length in range(1, len(c.token_ids) + 1):
            prefix = c.token_ids[:length]
            best[prefix] = max(best.get(prefix, float("-inf")), c.score)
    return best


@given(drafts)
def test_nodes_are_those_of_a_dictionary_trie(drafts: Drafts) -> None:
    candidates = candidates_of(drafts)
    paths = token_paths(build(candidates))
    assert len(set(paths)) == len(paths)
    assert set(paths) == set(dictionary_trie(candidates))
    assert all(c.token_ids in paths for c in candidates)
    assert len(paths) <= 1 + sum(len(c.token_ids) for c in candidates)


@given(drafts, st.integers(0, 20))
def test_budget_keeps_the_best_nodes(drafts: Drafts, budget: int) -> None:
    candidates = candidates_of(drafts)
    best = dictionary_trie(candidates)
    paths = token_paths(build(candidates, budget))
    worth = sorted((-best[path], len(path)) for path in best if path != (P,))
    assert sorted((-best[path], len(path)) for path in paths[1:]) == worth[:budget]
    assert all(path[:-1] in paths for path in paths if len(path) > 1)


@given(drafts, st.data())
def test_order_of_candidates_does_not_matter(drafts: Drafts, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(drafts))
    for budget in (2, 5, 64):
        first, second = (build(candidates_of(order), budget) for order in (drafts, shuffled))
        assert token_paths(first) == token_paths(second)
