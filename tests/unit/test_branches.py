"""Branches as pictures, and against the published tree that repeats what they share."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from primitives.registry import TREE_BUILDERS
from primitives.types import Candidate, DraftTree
from support.scenes import as_lists, token_paths

P = 1  # Pending.
BEST = Candidate(token_ids=(P, 2, 3, 4), score=3.0, match_len=3, source="pool")
SECOND = Candidate(token_ids=(P, 5), score=2.0, match_len=1, source="guess")
THIRD = Candidate(token_ids=(P, 2, 6), score=1.0, match_len=2, source="guess")
ALTERNATIVE = Candidate(token_ids=(9, 2), score=2.5, match_len=4, source="soft")


def build(candidates: list[Candidate], budget: int, duplicates: str = "charge") -> DraftTree:
    return TREE_BUILDERS.create("branches", duplicates=duplicates).build(P, candidates, budget)


def test_what_branches_share_is_charged_but_not_repeated() -> None:
    """The published tree of 6 nodes has 2 3 4, 5, and 2 6, with two rows for 2."""
    tree = build([THIRD, SECOND, BEST], 6)
    assert str(tree) == (
        "0: token 1\n"
        "  1: token 2\n"
        "    2: token 3\n"
        "      3: token 4\n"
        "    5: token 6\n"
        "  4: token 5"
    )  # fmt: skip
    assert tree.sources == ("", "pool", "pool", "pool", "guess", "guess")
    assert tree.match_lens == (0, 3, 3, 3, 1, 2)
    # The fifth row is the second 2, which is there already; a trie would have room for 6.
    assert build([THIRD, SECOND, BEST], 5).token_ids.tolist() == [P, 2, 3, 4, 5]


def test_a_branch_is_cut_where_the_budget_ends() -> None:
    assert build([BEST, SECOND], 2).token_ids.tolist() == [P, 2, 3]
    assert build([BEST, SECOND], 0).token_ids.tolist() == [P]


def test_a_branch_that_starts_like_another_can_be_dropped() -> None:
    fourth = Candidate(token_ids=(P, 7, 2), score=0.0)
    tree = build([BEST, SECOND, THIRD, fourth], 6, "drop")
    assert tree.token_ids.tolist() == [P, 2, 3, 4, 5, 7, 2]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 0, 0, 5]


def test_alternatives_to_pending_are_draft_nodes() -> None:
    tree = build([ALTERNATIVE, SECOND], 3)
    assert (tree.token_ids.tolist(), tree.depths.tolist()) == ([P, 9, 2, 5], [0, 0, 1, 1])
    assert build([ALTERNATIVE, SECOND], 1).token_ids.tolist() == [P, 9]
    other = Candidate(token_ids=(9, 3), score=2.0)
    assert build([ALTERNATIVE, other], 8, "drop").token_ids.tolist() == [P, 9, 2]


def test_nodes_keep_their_distributions() -> None:
    rows = torch.arange(6.0).reshape(3, 2)
    drawn = [
        Candidate(token_ids=(P, 4, 3), draft_probs=rows),
        Candidate(token_ids=(P, 0), draft_probs=rows[:2]),
    ]
    assert as_lists(build(drawn, 8).draft_probs) == [[0, 0], [2, 3], [4, 5], [2, 3]]
    with pytest.raises(ValueError, match="with and without draft_probs cannot share a tree"):
        build([drawn[0], SECOND], 8)


branches = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=6)


@given(branches, st.integers(0, 20))
def test_paths_are_those_of_the_published_tree(tails: list[list[int]], budget: int) -> None:
    candidates = [
        Candidate(token_ids=(P, *tail), score=-float(rank)) for rank, tail in enumerate(tails)
    ]
    rows = [(P, *tail[: place + 1]) for tail in tails for place in range(len(tail))]
    assert set(token_paths(build(candidates, budget))) == {(P,), *rows[:budget]}
