"""SpecInfer and Traversal Verification on hand-worked trees."""

from __future__ import annotations

import pytest
import torch

from primitives.random_source import TorchRandom
from primitives.registry import VERIFIERS
from primitives.types import MAX_DRAFT_NODES, DraftTree
from support.enumeration import EnumeratingRandom, assert_same_law, exact_law

Law = dict[tuple[tuple[int, ...], int], float]
HALVES = [0.5, 0.5]


def law_of(verifier: str, tree: DraftTree, *probs: list[float]) -> Law:
    """The law of (path, next id) for given target probabilities per node."""
    logits = torch.tensor(probs, dtype=torch.float64).log()

    def run(random: EnumeratingRandom) -> tuple[tuple[int, ...], int]:
        verdict = VERIFIERS.create(verifier).verify(tree, logits[0], logits, random)
        return verdict.path, verdict.next_id

    return exact_law(run)


def tree(token_ids: list[int], parents: list[int], *rows: list[float]) -> DraftTree:
    """With the laws that the draft nodes were drawn from."""
    draft_probs = torch.tensor([[0.0] * len(rows[0]), *rows], dtype=torch.float64)
    return DraftTree.from_nodes(token_ids, parents, draft_probs=draft_probs)


def test_point_masses_are_tested_child_after_child() -> None:
    # Child 0 passes with 0.2; p without it is (0, 5/8, 3/8): child 1 with 5/8; else 2.
    siblings = DraftTree.from_nodes([2, 0, 1], [-1, 0, 0])
    law = law_of("spec_infer", siblings, [0.2, 0.5, 0.3], [0, 0, 1], [1, 0, 0])
    assert_same_law(law, {((0, 1), 2): 0.2, ((0, 2), 0): 0.8 * 5 / 8, ((0,), 2): 0.8 * 3 / 8})


@pytest.mark.parametrize("verifier", ["spec_infer", "traversal"])
def test_one_level_without_replacement(verifier: str) -> None:
    # q = (1/2, 1/4, 1/4), p = (1/8, 3/8, 1/2). Child 0 passes with 1/4; what is left of p is
    # (0, 1/3, 2/3), of q (0, 1/2, 1/2): child 1 passes with 2/3; else the next token is 2.
    row = [0.5, 0.25, 0.25]
    law = law_of(
        verifier, tree([2, 0, 1], [-1, 0, 0], row, row), [1 / 8, 3 / 8, 1 / 2], [1, 0, 0], [0, 1, 0]
    )
    assert_same_law(law, {((0, 1), 0): 1 / 4, ((0, 2), 1): 3 / 4 * 2 / 3, ((0,), 2): 1 / 4})


def test_a_path_may_be_kept_for_what_follows_it() -> None:
    # Rates: 1/2 for the first token, min(1/2 * 1 / (1/2), 1) = 1 for both.
    chain = tree([1, 0, 0], [-1, 0, 1], HALVES, HALVES)
    probs = [0.25, 0.75], [1.0, 0.0], [0.0, 1.0]
    assert_same_law(law_of("traversal", chain, *probs), {((0, 1, 2), 1): 1.0})
    spec_infer = law_of("spec_infer", chain, *probs)
    assert_same_law(spec_infer, {((0, 1, 2), 1): 0.5, ((0,), 1): 0.5})


def test_a_refused_leaf_changes_the_rate_of_its_parent() -> None:
    # Rates 3/4, then 3/4 * (1/4) / (1/2) = 3/8. If the leaf is refused: r = (0, 9/16 - 1/2), S is
    # 1/16, so the parent passes with (1/16) / (1/16 + 1/4) = 1/5, and 1 follows it.
    # If it is refused too: p - q = (0, 1/8) at the root, and 1 follows.
    chain = tree([1, 0, 0], [-1, 0, 1], HALVES, HALVES)
    law = law_of("traversal", chain, [3 / 8, 5 / 8], [1 / 4, 3 / 4], [0.0, 1.0])
    expected = {((0, 1, 2), 1): 3 / 8, ((0, 1), 1): 5 / 8 / 5, ((0,), 1): 5 / 8 * 4 / 5}
    assert_same_law(law, expected)


def test_the_second_sibling_is_reached_when_the_first_is_refused_as_a_whole() -> None:
    # Node 1 has the rate (1/4) / (1/2) = 1/2, its child min(1/2 * 0, 1) = 0: never kept. Without
    # it r = max(1/2 * (0, 1/2, 1/2) - (1, 0, 0), 0), S = 1/2: node 1 passes with 1/2 / (1/2 + 1/2).
    # Else p - q = (0, 1/4, 0) at the root: token 1 is all that is left, and of q (0, 1/2, 1/2).
    row = [0.5, 0.25, 0.25]
    nodes = tree([2, 0, 1, 0], [-1, 0, 0, 1], row, row, [1.0, 0.0, 0.0])
    law = law_of("traversal", nodes, [1 / 4, 1 / 2, 1 / 4], [0, 1 / 2, 1 / 2], [0, 0, 1], [1, 0, 0])
    assert_same_law(law, {((0, 1), 1): 1 / 4, ((0, 1), 2): 1 / 4, ((0, 2), 2): 1 / 2})


def test_a_draft_equal_to_the_target_is_kept_whole() -> None:
    row = [0.3, 0.7]
    chain = tree([1, 0, 1], [-1, 0, 1], row, row)
    assert_same_law(law_of("traversal", chain, row, row, [1.0, 0.0]), {((0, 1, 2), 0): 1.0})


@pytest.mark.parametrize("verifier", ["spec_infer", "traversal"])
def test_a_token_that_its_law_excludes_is_refused(verifier: str) -> None:
    chain = tree([0, 1], [-1, 0], [1.0, 0.0])
    with pytest.raises(ValueError, match="node 1 carries token 1, which its draft_probs exclude"):
        law_of(verifier, chain, [0.5, 0.5], [1.0, 0.0])


@pytest.mark.parametrize("verifier", ["sampling", "spec_infer", "traversal"])
def test_a_chain_as_deep_as_the_largest_budget(verifier: str) -> None:
    parents = [-1, *range(MAX_DRAFT_NODES)]
    chain = tree([0] * (MAX_DRAFT_NODES + 1), parents, *[[1.0, 0.0]] * MAX_DRAFT_NODES)
    logits = torch.tensor([[1.0, 0.0]] * len(parents)).log()
    verdict = VERIFIERS.create(verifier).verify(chain, logits[0], logits, TorchRandom.from_seed(0))
    assert verdict.path == tuple(range(MAX_DRAFT_NODES + 1))
    assert verdict.next_id == 0
