"""Templates of ranks, and candidates put into them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from primitives.structures.rank_templates import (
    rank_template,
    token_recycling_template,
)
from primitives.tree_builders.static_template import StaticTemplate
from primitives.types import Candidate

P = 1  # Pending.


def candidate(score: float, *draft: int, source: str = "") -> Candidate:
    return Candidate(token_ids=(P, *draft), score=float(score), source=source)


def tree(candidates: list[Candidate], budget: int = 80, **fields: Any) -> str:
    return str(StaticTemplate(**fields).build(P, candidates, budget))


CANDIDATES = [candidate(3, 2, 3), candidate(2, 4), candidate(1, 2, 5), candidate(0, 6)]


def test_nodes_are_placed_by_rank_among_siblings() -> None:
    """Ranks: 2 is (0), 4 is (1), 6 is (2); 3 is (0, 0), 5 is (0, 1)."""
    assert tree(CANDIDATES, template=[[0], [1], [0, 0], [0, 1], [0, 2], [1, 0]]) == (
        "0: token 1\n  1: token 2\n    2: token 3\n    4: token 5\n  3: token 4"
    )
    assert tree(CANDIDATES, template=[[0], [1], [2]]) == (
        "0: token 1\n  1: token 2\n  2: token 4\n  3: token 6"
    )


def test_the_budget_keeps_the_beginning_of_the_template() -> None:
    template = [[0], [1], [0, 0], [0, 1]]
    assert tree(CANDIDATES, 2, template=template) == "0: token 1\n  1: token 2\n  2: token 4"
    assert tree(CANDIDATES, 0, template=template) == "0: token 1"


def test_a_node_names_the_best_candidate_through_it() -> None:
    candidates = [candidate(2, 2, 3, source="near"), candidate(1, 2, 4, source="far")]
    built = StaticTemplate().build(P, candidates, 80)
    assert built.token_ids.tolist() == [P, 2, 3, 4]
    assert built.sources == ("", "near", "near", "far")


def test_alternatives_to_pending_have_no_rank() -> None:
    alternative = Candidate(token_ids=(7, 2), score=9.0)
    assert tree([alternative, candidate(1, 4)]) == "0: token 1\n  1: token 4"


def test_sampled_and_other_candidates_do_not_mix() -> None:
    sampled = Candidate(token_ids=(P, 2), draft_probs=torch.full((2, 4), 0.25))
    with pytest.raises(ValueError, match="cannot share a tree"):
        StaticTemplate().build(P, [sampled, candidate(0, 3)], 80)


def test_token_recyclings_template_has_the_published_numbers() -> None:
    nodes = token_recycling_template()
    assert len(set(nodes)) == 80
    depths = Counter(map(len, nodes))
    assert tuple(depths[depth] for depth in range(1, 7)) == (8, 21, 25, 15, 8, 3)
    assert {(0, 7), (7, 0), (0, 0, 0, 0, 0, 1)} < set(nodes)
    assert not {(1, 4), (4, 1), (0, 1, 0, 1)} & set(nodes)
    assert rank_template([list(node) for node in nodes]) == nodes  # Its order is a legal one.
    assert {node for node in nodes if len(node) == 1} == {(rank,) for rank in range(8)}
    assert nodes[:4] == ((0,), (0, 0), (1,), (2,))  # 0.42, 0.176, 0.14, 0.08; (0, 0, 0) has 0.074.


drafts_st = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), max_size=8)


def ranks_of(path: list[int], drafts: list[list[int]]) -> tuple[int, ...]:
    """The place of each token among the first tokens behind the path before it."""
    ranks = []
    for depth, token_id in enumerate(path):
        behind = [d[depth] for d in drafts if d[:depth] == path[:depth] and len(d) > depth]
        ranks.append(list(dict.fromkeys(behind)).index(token_id))
    return tuple(ranks)


@given(drafts_st, st.integers(0, 12))
def test_the_first_nodes_of_the_template_that_exist_are_kept(
    drafts: list[list[int]], budget: int
) -> None:
    candidates = [candidate(-place, *draft) for place, draft in enumerate(drafts)]
    built = StaticTemplate().build(P, candidates, budget)
    paths = [built.token_ids[built.path_to(node)].tolist()[1:] for node in range(built.num_nodes)]
    existing = {ranks_of(d[:length], drafts) for d in drafts for length in range(1, len(d) + 1)}
    expected = [node for node in token_recycling_template() if node in existing][:budget]
    assert {ranks_of(path, drafts) for path in paths[1:]} == set(expected)
    assert len(paths[1:]) == len(expected)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ([], r"template must hold at least one node, got \[\]"),
        ([[0], []], r"template must hold distinct lists of ranks ≥ 0, got \[\]"),
        ([[0], [0]], r"distinct lists of ranks ≥ 0, got \[0\]"),
        ([[0], [-1]], r"distinct lists of ranks ≥ 0, got \[-1\]"),
        ([[1]], r"template must hold \[0\] before \[1\]"),
        ([[0], [1, 0]], r"template must hold \[1\] before \[1, 0\]"),
        ("medusa", "template must be token_recycling or a list of nodes, got 'medusa'"),
    ],
)
def test_bad_templates_are_refused(template: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_template(template)
