"""Sequoia: the best shape against all shapes, and where ranked candidates are placed."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.registry import TREE_BUILDERS
from primitives.structures.best_shape import Shape, best_shape
from primitives.types import Candidate
from support.scenes import token_paths

P = 9  # Pending.

Forest = tuple["Forest", ...]
"""A shape as the shapes below its children, in the order of their ranks."""


@functools.cache
def all_shapes(num_nodes: int, max_children: int) -> list[Forest]:
    """Every ordered tree of so many nodes, node 0 included."""
    if num_nodes == 1:
        return [()]
    return [
        forest
        for num_children in range(1, max_children + 1)
        for sizes in itertools.product(range(1, num_nodes), repeat=num_children)
        if sum(sizes) == num_nodes - 1
        for forest in itertools.product(*(all_shapes(size, max_children) for size in sizes))
    ]


def worth(shape: Forest, acceptance: tuple[float, ...]) -> float:
    return 1.0 + sum(p * worth(below, acceptance) for p, below in zip(acceptance, shape))  # noqa: B905


def depth_of(shape: Forest) -> int:
    return max((1 + depth_of(below) for below in shape), default=0)


def as_forest(shape: Shape) -> Forest:
    """The inverse of the flattening; checks parents and ranks on the way."""
    children: list[list[int]] = [[] for _ in shape.parents]
    for node in range(1, shape.num_nodes):
        siblings = children[shape.parents[node]]
        assert shape.parents[node] < node
        assert shape.ranks[node] == len(siblings)
        siblings.append(node)

    def below(node: int) -> Forest:
        return tuple(below(child) for child in children[node])

    return below(0)


rates = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8, 1.0]), min_size=1, max_size=3)
costs = st.lists(st.sampled_from([0.1, 0.5, 1.0]), min_size=1, max_size=6)


@given(rates, st.integers(1, 7), st.none() | costs, st.sampled_from([0.0, 0.1, 0.6]))
def test_no_other_shape_costs_less_per_token(
    acceptance: list[float], max_nodes: int, steps: list[float] | None, draft_cost: float
) -> None:
    ps = tuple(acceptance)
    row_costs = None if steps is None else tuple(itertools.accumulate(steps))
    found = best_shape(ps, max_nodes, row_costs, draft_cost)
    forest = as_forest(found)
    assert worth(forest, ps) == pytest.approx(found.expected_tokens)
    assert depth_of(forest) <= found.depth

    def cost_per_token(shape: Forest, num_nodes: int) -> float:
        row_cost = 1.0 if row_costs is None else row_costs[num_nodes - 1]
        return (row_cost + draft_cost * depth_of(shape)) / worth(shape, ps)

    largest = max_nodes if row_costs is None else min(max_nodes, len(row_costs))
    best = min(
        cost_per_token(shape, num_nodes)
        for num_nodes in range(1, largest + 1)
        for shape in all_shapes(num_nodes, len(ps))
    )
    assert cost_per_token(forest, found.num_nodes) == pytest.approx(best)


def test_best_shape_by_hand() -> None:
    # Nodes are worth 1, .6, .36, .3, .216, .18 (the first child of the second) and .18: the best
    # five are node 0, its two children and two more levels below the first one.
    found = best_shape((0.6, 0.3), 5)
    assert as_forest(found) == ((((),),), ())
    assert found.expected_tokens == pytest.approx(1 + 0.6 + 0.36 + 0.216 + 0.3)


def test_costs_limit_size_and_depth() -> None:
    # 1.6 tokens at 1.1 beat 1.96 at 2 and 1 at 1.
    assert best_shape((0.6,), 9, (1.0, 1.1, 2.0)).num_nodes == 2
    assert best_shape((0.6,), 9, (1.0, 1.7)).num_nodes == 1
    assert best_shape((0.6, 0.2), 3).depth == 2  # .36 is more than .2 ...
    assert best_shape((0.6, 0.2), 3, None, 0.2).depth == 1  # ... but 1.96 / 1.4 < 1.8 / 1.2.


def draft(*token_ids: int, **fields: Any) -> Candidate:
    return Candidate(token_ids=(P, *token_ids), **fields)


def kept(candidates: list[Candidate], budget: int, **fields: Any) -> set[tuple[int, ...]]:
    """The draft nodes as paths behind pending."""
    tree = TREE_BUILDERS.create("sequoia", **fields).build(P, candidates, budget)
    return {path[1:] for path in token_paths(tree)} - {()}


CANDIDATES = [
    draft(1, 2, 3, 4, score=3.0),
    draft(5, 6, score=2.0),
    draft(1, 7, score=1.0),
    draft(8, score=0.0),
]


def test_candidates_are_placed_by_rank() -> None:
    # The shape of five nodes worked out above: 1, 1 2, 1 2 3 and 5.
    expected = {(1,), (1, 2), (1, 2, 3), (5,)}
    assert kept(CANDIDATES, 4, acceptance=[0.6, 0.3], fill=False) == expected
    assert kept(CANDIDATES, 4, acceptance=[0.6, 0.3], fill=True) == expected


def test_empty_places_are_filled_by_the_rates_on_the_path() -> None:
    # Chains only of the one candidate: the place of a second child stays empty.
    chain = [draft(1, 2, 3, 4, 5)]
    assert len(kept(chain, 4, acceptance=[0.6, 0.3], fill=False)) == 3
    assert kept(chain, 4, acceptance=[0.6, 0.3]) == {(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)}
    # Third children have no rate, so 8 gets no place at all.
    assert (8,) not in kept(CANDIDATES, 9, acceptance=[0.6, 0.3])
    assert (8,) in kept(CANDIDATES, 9, acceptance=[0.6, 0.3, 0.1])


def test_filling_prefers_what_is_accepted_more_often() -> None:
    # For 5 nodes of rates .5, .4 the shape is 1 + .5 + .4 + .25 + .2, where .2 is the second child
    # of the first child or the first child of the second. Neither candidate has both.
    candidates = [draft(1, 2, 3), draft(5)]
    assert kept(candidates, 4, acceptance=[0.5, 0.4]) == {(1,), (5,), (1, 2), (1, 2, 3)}
    assert kept(candidates, 4, acceptance=[0.5, 0.4], fill=False) == {(1,), (5,), (1, 2)}


def test_alternatives_to_pending_only_fill() -> None:
    candidates = [draft(1, score=2.0), Candidate(token_ids=(7,), score=1.0)]
    rates = {"acceptance": [0.6, 0.3]}
    for fill, ids in ((True, [P, 1, 7]), (False, [P, 1])):
        tree = TREE_BUILDERS.create("sequoia", fill=fill, **rates).build(P, candidates, 4)
        assert tree.token_ids.tolist() == ids


def test_row_costs_limit_the_tree() -> None:
    fields = {"acceptance": [0.6, 0.3], "row_costs": [1.0, 1.1, 2.0]}
    assert kept(CANDIDATES, 64, **fields) == {(1,)}
    assert kept(CANDIDATES, 64, **fields, draft_cost=1.0) == set()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"acceptance": []}, r"acceptance must hold .*, got \[\]"),
        ({"acceptance": [0.5, 1.5]}, r"acceptance must hold .* in \[0, 1\], .*got \[0.5, 1.5\]"),
        ({"acceptance": [float("nan")]}, "acceptance must hold"),
        ({"acceptance": 0.5}, "acceptance of tree_builder 'sequoia' must be a list, each item"),
        ({"row_costs": []}, r"row_costs must hold numbers > 0, at least one, got \[\]"),
        ({"row_costs": [1.0, 0.0]}, "row_costs must hold numbers > 0"),
        ({"draft_cost": -0.1}, "draft_cost must be ≥ 0 and finite, got -0.1"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TREE_BUILDERS.create("sequoia", **fields)
