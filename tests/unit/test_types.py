"""Draft trees: invariants, derived arrays and the picture; ranking and cutting of candidates."""

from __future__ import annotations

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from primitives.types import Candidate, Context, DraftTree, rank_candidates

# The tree that the docstring of primitives/types.py draws: the -> (cat -> sat, dog).
THE, CAT, SAT, DOG = 10, 11, 12, 13
PICTURE = DraftTree.from_nodes([THE, CAT, SAT, DOG], [-1, 0, 1, 0])


@st.composite
def parent_lists(draw: st.DrawFn) -> list[int]:
    """Parents of random trees, alternatives at depth 0 included."""
    num_nodes = draw(st.integers(1, 24))
    return [-1, *(draw(st.integers(-1, node - 1)) for node in range(1, num_nodes))]


def tree_of(parents: list[int]) -> DraftTree:
    return DraftTree.from_nodes(range(len(parents)), parents)


def test_picture_of_the_docstring() -> None:
    assert PICTURE.depths.tolist() == [0, 1, 2, 1]
    assert PICTURE.ancestor_mask().astype(int).tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 0, 0, 1],
    ]
    assert PICTURE.children() == [[1, 3], [2], [], []]
    assert PICTURE.path_to(2) == [0, 1, 2]
    assert (PICTURE.num_nodes, PICTURE.num_draft_nodes, PICTURE.is_chain) == (4, 3, False)
    assert str(PICTURE) == (
        "0: token 10\n"
        "  1: token 11\n"
        "    2: token 12\n"
        "  3: token 13"
    )  # fmt: skip


def test_str_shows_alternatives_to_pending() -> None:
    tree = DraftTree.from_nodes([10, 20, 11, 21], [-1, -1, 0, 1])
    assert str(tree) == "0: token 10\n  2: token 11\n1: token 20\n  3: token 21"


def test_root_only_is_a_chain_of_one() -> None:
    tree = DraftTree.root_only(7)
    assert (tree.num_draft_nodes, tree.is_chain, tree.depths.tolist()) == (0, True, [0])
    assert tree.ancestor_mask().tolist() == [[True]]


@given(parent_lists())
def test_mask_equals_brute_force(parents: list[int]) -> None:
    tree = tree_of(parents)
    for node in range(tree.num_nodes):
        ancestors, walker = set(), node
        while walker >= 0:
            ancestors.add(walker)
            walker = parents[walker]
        assert set(np.flatnonzero(tree.ancestor_mask()[node]).tolist()) == ancestors


@given(parent_lists())
def test_paths_children_and_depths_agree(parents: list[int]) -> None:
    tree, children = tree_of(parents), tree_of(parents).children()
    for node, parent in enumerate(parents):
        path = tree.path_to(node)
        assert path[-1] == node
        assert path[:-1] == (tree.path_to(parent) if parent >= 0 else [])
        assert tree.depths[node] == len(path) - 1
        assert parent < 0 or node in children[parent]
    assert sum(map(len, children)) == sum(parent >= 0 for parent in parents)
    assert tree.is_chain == (parents == list(range(-1, len(parents) - 1)))


@given(parent_lists())
def test_str_has_one_line_per_node_indented_by_depth(parents: list[int]) -> None:
    tree = tree_of(parents)
    lines = str(tree).split("\n")
    assert sorted(int(line.split(":")[0]) for line in lines) == list(range(tree.num_nodes))
    for line in lines:
        node = int(line.split(":")[0])
        assert len(line) - len(line.lstrip()) == 2 * tree.depths[node]


@pytest.mark.parametrize(
    ("token_ids", "parents", "message"),
    [
        ([], [], "a draft tree has at least node 0, got no nodes"),
        ([1, 2], [-1], r"parents must have one entry per node \(2\), got 1"),
        ([1, 2], [0, 0], r"parents\[0\] must be -1, got 0"),
        ([1, 2], [-1, 1], r"parents\[1\] must be in \[-1, 1\), got 1"),
        ([1, 2, 3], [-1, 0, -2], r"parents\[2\] must be in \[-1, 2\), got -2"),
        ([1, 2, 2], [-1, 0, 0], "siblings must be distinct, node 2 repeats token 2"),
        ([1, 1], [-1, -1], "siblings must be distinct, node 1 repeats token 1"),
    ],
)
def test_broken_trees_are_refused(token_ids: list[int], parents: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DraftTree.from_nodes(token_ids, parents)


@pytest.mark.parametrize(
    ("field", "value"),
    [("sources", ["a"]), ("match_lens", [1, 2, 3]), ("draft_probs", torch.ones(1, 4))],
)
def test_one_entry_per_node(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"{field} must have one entry per node \(2\)"):
        DraftTree.from_nodes([1, 2], [-1, 0], **{field: value})


def test_arrays_are_read_only() -> None:
    for array in (PICTURE.token_ids, PICTURE.parents, PICTURE.depths):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_the_same_token_may_follow_different_parents() -> None:
    assert DraftTree.from_nodes([1, 2, 2, 3, 3], [-1, 0, 1, 0, 1]).num_nodes == 5


def test_context_splits_off_pending() -> None:
    context = Context(ids_with_pending=np.array([4, 5, 6]), num_prompt_tokens=1, vocab_size=8)
    assert context.token_ids.tolist() == [4, 5]
    assert context.pending_id == 6


def test_cut_keeps_rows_beside_their_tokens() -> None:
    candidate = Candidate(token_ids=(1, 2, 3), score=2.0, draft_probs=torch.eye(3))
    assert candidate.cut(3) is candidate
    short = candidate.cut(2)
    assert (short.token_ids, short.score) == ((1, 2), 2.0)
    assert torch.equal(short.draft_probs, torch.eye(3)[:2])


def test_rank_breaks_ties_by_recency_then_token_ids() -> None:
    best = Candidate(token_ids=(9,), score=2.0)
    recent = Candidate(token_ids=(8,), score=1.0, recency=5)
    small, large = (Candidate(token_ids=(n,), score=1.0, recency=3) for n in (1, 2))
    assert rank_candidates([large, small, recent, best]) == [best, recent, small, large]


def test_shapes_are_checked_in_tests(pytestconfig: pytest.Config) -> None:
    """Fails if the import hook of conftest.py is not in place."""
    if pytestconfig.getoption("--without-shape-checks"):
        pytest.skip("--without-shape-checks")
    with pytest.raises(jaxtyping.TypeCheckError, match="ids_with_pending"):
        Context(
            ids_with_pending=np.zeros((2, 2), dtype=np.int64), num_prompt_tokens=1, vocab_size=8
        )
