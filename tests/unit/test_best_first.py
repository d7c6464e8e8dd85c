"""Best first: path probabilities by hand, and the best tree against all trees."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.registry import TREE_BUILDERS
from primitives.structures.candidate_trie import CandidateTrie
from primitives.types import Candidate, DraftTree
from support.scenes import draft_row, token_paths

P = 9  # Pending.


def draft(*token_ids: int, **fields: Any) -> Candidate:
    return Candidate(token_ids=(P, *token_ids), **fields)


def build(candidates: list[Candidate], budget: int, threshold: float = 0.0) -> DraftTree:
    return TREE_BUILDERS.create("best_first", threshold=threshold).build(P, candidates, budget)


def kept(candidates: list[Candidate], budget: int, threshold: float = 0.0) -> set[tuple[int, ...]]:
    """The draft nodes as paths behind pending."""
    return {path[1:] for path in token_paths(build(candidates, budget, threshold))} - {()}


def probs(candidates: list[Candidate]) -> dict[tuple[int, ...], float]:
    """Path probabilities of the whole trie, by path behind pending."""
    trie = CandidateTrie(P, candidates)
    trie.check_integrity()
    paths = token_paths(trie.to_tree(range(1, len(trie))))
    return {path[1:]: prob for path, prob in zip(paths, trie.path_probs(), strict=True) if path[1:]}


MODEL = [
    draft(1, 2, 3, score=2.0, token_probs=(1.0, 0.5, 0.9, 0.1)),  # 0.5, 0.45, 0.045
    draft(1, 4, score=1.0, token_probs=(1.0, 0.5, 0.08)),  # 0.04
    draft(5, 6, score=0.0, token_probs=(1.0, 0.4, 0.5)),  # 0.4, 0.2
]


def test_estimates_multiply_along_the_path() -> None:
    expected = {(1,): 0.5, (1, 2): 0.45, (1, 2, 3): 0.045, (1, 4): 0.04, (5,): 0.4, (5, 6): 0.2}
    assert probs(MODEL) == pytest.approx(expected)


def test_the_most_probable_nodes_are_kept() -> None:
    order = [(1,), (1, 2), (5,), (5, 6), (1, 2, 3), (1, 4)]
    for budget in range(7):
        assert kept(MODEL, budget) == set(order[:budget])


def test_counts_stand_in_for_estimates() -> None:
    # Of 8 occurrences 6 go on with 1 and 2 with 2; of those 6 half end there, 3 go on with 3.
    candidates = [
        draft(1, count=3, score=3.0), draft(1, 3, count=3, score=2.0), draft(2, count=2, score=1.0)
    ]  # fmt: skip
    assert probs(candidates) == pytest.approx({(1,): 6 / 8, (1, 3): 3 / 8, (2,): 2 / 8})


def test_counts_divide_what_estimates_leave() -> None:
    # The model gives 1 six tenths; what is left goes to 2 and 3 by their counts of 3 and 1.
    candidates = [
        draft(1, score=9.0, token_probs=(1.0, 0.6)),
        draft(2, 7, count=3, score=2.0),
        draft(3, count=1, score=1.0),
    ]
    assert probs(candidates) == pytest.approx({(1,): 0.6, (2,): 0.3, (2, 7): 0.3, (3,): 0.1})


def test_equal_probabilities_are_kept_by_depth_then_rank() -> None:
    candidates = [draft(1, 2, score=1.0), draft(3, 4, score=0.0)]  # All of 1/2.
    assert [kept(candidates, budget) for budget in (1, 2, 3)] == [
        {(1,)}, {(1,), (3,)}, {(1,), (3,), (1, 2)}
    ]  # fmt: skip


def test_alternatives_stand_beside_pending_by_their_share() -> None:
    # 3 of 4 occurrences start with pending; its child is 1 of those 3, the alternative 1 of 4.
    candidates = [draft(count=2), draft(1, score=2.0), Candidate(token_ids=(7,), score=1.0)]
    tree = build(candidates, 1)
    assert tree.token_ids.tolist() == [P, 1]  # 1/3 is more than 1/4.
    tree = build(candidates, 2)
    assert (tree.token_ids.tolist(), tree.parents.tolist()) == ([P, 1, 7], [-1, 0, -1])


def test_threshold_ends_the_tree_where_a_level_adds_little() -> None:
    # Levels hold 0.9, then 0.45 + 0.2 + 0.04, then 0.045: of 6 nodes they add just these.
    assert kept(MODEL, 6, threshold=0.1) == {(1,), (5,), (1, 2), (1, 4), (5, 6)}
    assert kept(MODEL, 6, threshold=0.7) == {(1,), (5,)}
    # Of 3 nodes level 2 adds 0.45 + 0.2, level 3 nothing: its 0.045 is not among the best 3.
    assert kept(MODEL, 3, threshold=0.01) == {(1,), (5,), (1, 2)}
    assert kept(MODEL, 6, threshold=1.0) == set()


def test_sampled_drafts_are_kept_by_depth_and_order() -> None:
    ids = [(P, 3, 1), (P, 1, 2)]
    candidates = [
        Candidate(
            token_ids=path,
            score=float(rank),
            draft_probs=draft_row((), 10).repeat(3, 1),
            token_probs=(1.0, 0.1 + 0.8 * rank, 0.5),
        )
        for rank, path in enumerate(ids)
    ]
    assert kept(candidates, 1) == {(3,)}
    assert kept(candidates, 3) == {(3,), (1,), (3, 1)}
    with pytest.raises(ValueError, match="with and without draft_probs cannot share a tree"):
        build([*candidates, draft(1)], 4)


NODES = [path for length in (1, 2, 3) for path in itertools.product(range(3), repeat=length)]
drafts = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=3), st.integers(1, 4)), min_size=1, max_size=4
)
shares = st.lists(
    st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=len(NODES), max_size=len(NODES)
)


@given(drafts, st.none() | shares, st.integers(0, 6))
def test_no_other_tree_of_this_size_expects_more(
    paths: list[tuple[list[int], int]], estimates: list[float] | None, budget: int
) -> None:
    """Against every set of nodes that is closed under parents."""
    given_probs = {} if estimates is None else dict(zip(NODES, estimates, strict=True))
    candidates = []
    for rank, (ids, count) in enumerate(paths):
        known = [given_probs[tuple(ids[: i + 1])] for i in range(len(ids))] if estimates else []
        own = (1.0, *known) if estimates else ()
        candidates.append(draft(*ids, score=-float(rank), count=count, token_probs=own))
    worth = probs(candidates)
    trees = (
        set(nodes)
        for size in range(min(budget, len(worth)) + 1)
        for nodes in itertools.combinations(worth, size)
    )
    best = max(
        sum(worth[node] for node in nodes)
        for nodes in trees
        if all(len(node) == 1 or node[:-1] in nodes for node in nodes)
    )
    chosen = kept(candidates, budget)
    assert len(chosen) <= budget
    assert sum(worth[node] for node in chosen) == pytest.approx(best)


@pytest.mark.parametrize("value", [-0.5, float("nan")])
def test_bad_thresholds_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=f"threshold must be ≥ 0, got {value}"):
        TREE_BUILDERS.create("best_first", threshold=value)
