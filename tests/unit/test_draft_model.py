"""Drafts of a draft model: by hand from fixed laws, and against brute force over all paths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from methods.targets.toy import ToyTarget
from primitives.random_source import TorchRandom
from primitives.retrievers.draft_model import DraftModel
from primitives.structures.draft_growth import DraftNode, Shape
from primitives.structures.draft_samples import plan_levels
from primitives.types import MAX_DRAFT_NODES, Candidate, Context, DraftTree, StepOutcome
from support.toy import greedy_continuation


@dataclass
class FixedLaw:
    """A draft model whose next token depends on the last one only: row i of `probs` behind i."""

    probs: list[list[float]]
    max_context: int | None = None
    num_committed: int = 0
    num_nodes: int = 0
    forwards: list[int] = field(default_factory=list)

    @property
    def vocab_size(self) -> int:
        return len(self.probs)

    def reset(self) -> None:
        self.num_committed = self.num_nodes = 0

    def prefill(self, token_ids: Sequence[int], *, reserve: int, draft_rows: int = 0) -> None:
        self.num_committed = len(token_ids)

    def extend_tree(self, tree: DraftTree) -> Any:
        new_ids = tree.token_ids[self.num_nodes :].tolist()
        self.forwards.append(len(new_ids))
        self.num_nodes = tree.num_nodes
        rows = torch.tensor([self.probs[i] for i in new_ids], dtype=torch.float64)
        return SimpleNamespace(logits=rows.log())

    def commit(self, path: Sequence[int]) -> None:
        self.num_committed, self.num_nodes = self.num_committed + len(path), 0

    def truncate(self, num_rows: int) -> None:
        self.num_committed, self.num_nodes = num_rows, 0


LAW = [0.5, 0.3, 0.2]
SAME = [LAW] * 3


def context(ids: Sequence[int], vocab_size: int = 3, **fields: Any) -> Context:
    """A text whose last id is pending."""
    array = np.array(ids, dtype=np.int64)
    return Context(ids_with_pending=array, num_prompt_tokens=1, vocab_size=vocab_size, **fields)


def retriever(model: Any, **fields: Any) -> DraftModel:
    drafter = DraftModel(**fields)
    drafter.attach_draft_model(model)
    return drafter


def drafts(candidates: list[Candidate]) -> list[tuple[int, ...]]:
    """The tokens behind pending."""
    return [candidate.token_ids[1:] for candidate in candidates]


def test_a_chain_is_the_greedy_continuation_with_its_probabilities() -> None:
    # Behind 0 most likely 1 (0.6), behind 1 most likely 2 (0.7), behind 2 most likely 0 (0.5).
    model = FixedLaw([[0.3, 0.6, 0.1], [0.2, 0.1, 0.7], [0.5, 0.25, 0.25]])
    (candidate,) = retriever(model, num_tokens=4).propose(context([2, 0]), 8)
    assert candidate.token_ids == (0, 1, 2, 0, 1)
    assert candidate.token_probs == pytest.approx((1.0, 0.6, 0.7, 0.5, 0.6), rel=1e-12)
    assert candidate.score == pytest.approx(math.log(0.6 * 0.7 * 0.5 * 0.6), rel=1e-12)
    assert candidate.draft_probs is None
    assert model.forwards == [1, 1, 1, 1]


def test_a_tree_keeps_the_most_probable_nodes() -> None:
    # Level 1: 0 (0.5), 1 (0.3); level 2: 00 (0.25), 01 (0.15), 10 (0.15), 11 (0.09).
    # The best four are 0, 1, 00 and of 01 and 10 the one that was found first.
    model = FixedLaw(SAME)
    tree = retriever(model, shape="tree", top_k=2, num_tokens=2, total_nodes=4)
    candidates = tree.propose(context([2, 0]), 8)
    assert drafts(candidates) == [(1,), (0, 0), (0, 1)]
    assert [c.score for c in candidates] == pytest.approx([math.log(p) for p in (0.3, 0.25, 0.15)])
    assert model.forwards == [1, 2]
    assert drafts(tree.propose(context([2, 0]), 2)) == [(1,), (0, 0)]


def test_only_the_best_nodes_of_a_level_are_expanded() -> None:
    # Level 2 of width 2: 00 (0.25) and 01 (0.15) are expanded, 10 and 11 are not.
    model = FixedLaw(SAME)
    tree = retriever(model, shape="tree", top_k=2, num_tokens=3, total_nodes=99)
    found = {draft[:3] for draft in drafts(tree.propose(context([2, 0]), 99))}
    assert found == {(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0), (1, 1)}
    assert model.forwards == [1, 2, 2]


@pytest.mark.parametrize(("depth", "total"), [(1, 2), (2, 5), (3, 9), (3, 60)])
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_tree_holds_the_best_of_all_paths(seed: int, depth: int, total: int) -> None:
    """Where no node is left unexpanded, brute force over all paths says what is kept."""
    toy, ids = ToyTarget(vocab_size=4, seed=seed, eos_id=None), [1, 2, 3, 1]
    tree = retriever(toy, shape="tree", top_k=64, num_tokens=depth, total_nodes=total)
    candidates = tree.propose(context(ids, vocab_size=4), 99)
    kept = {draft[:end] for draft in drafts(candidates) for end in range(1, len(draft) + 1)}
    probs = {
        path: math.prod(
            float(toy.logits([*ids, *path[:i]]).softmax(-1)[path[i]]) for i in range(len(path))
        )
        for length in range(1, depth + 1)
        for path in itertools.product(range(4), repeat=length)
    }
    assert kept == set(sorted(probs, key=lambda path: -probs[path])[:total])
    for candidate in candidates:
        assert math.prod(candidate.token_probs) == pytest.approx(probs[candidate.token_ids[1:]])
        assert math.exp(candidate.score) == pytest.approx(probs[candidate.token_ids[1:]])


def test_tokens_beyond_the_vocabulary_are_not_drafted() -> None:
    toy, ids = ToyTarget(vocab_size=40, seed=1), [1, 2, 3, 1]
    for vocab_size in (40, 4):
        (candidate,) = retriever(toy).propose(context(ids, vocab_size), 1)
        assert max(candidate.token_ids) < vocab_size
        if vocab_size == 40:
            assert candidate.token_ids[1:] == greedy_continuation(toy, ids, 5)


@pytest.mark.parametrize("fields", [{}, {"shape": "tree", "top_k": 2}])
@pytest.mark.parametrize("sampled", ["greedy", "iid", "without_replacement"])
def test_nothing_follows_an_eos(sampled: str, fields: dict[str, Any]) -> None:
    ends = context([2, 1], eos_ids=frozenset({0}), random=TorchRandom.from_seed(0))
    candidates = retriever(FixedLaw(SAME), drafts=sampled, **fields).propose(ends, 9)
    assert any(0 in draft for draft in drafts(candidates))
    assert all(0 not in draft[:-1] for draft in drafts(candidates))


def test_samples_carry_the_law_at_their_temperature() -> None:
    random = TorchRandom.from_seed(0)
    sampler = retriever(FixedLaw(SAME), drafts="iid", temperature=0.5, num_tokens=2)
    (candidate,) = sampler.propose(context([2, 1], random=random), 9)
    # Squares of 0.5, 0.3, 0.2, normalised.
    expected = torch.tensor([0.25, 0.09, 0.04], dtype=torch.float64) / 0.38
    assert candidate.draft_probs is not None
    torch.testing.assert_close(candidate.draft_probs[1:], expected.expand(2, 3))
    assert candidate.token_probs == ()


def test_siblings_without_replacement_are_distinct_and_in_the_order_of_draws() -> None:
    orders = set()
    for seed in range(40):
        random = TorchRandom.from_seed(seed)
        tree = retriever(
            FixedLaw(SAME), drafts="without_replacement", shape="tree", top_k=4, num_tokens=1
        )
        candidates = tree.propose(context([2, 1], random=random), 9)
        first = [token_id for (token_id,) in drafts(candidates)]
        assert sorted(first) == [0, 1, 2]  # The fourth draw finds nothing left.
        assert {candidate.score for candidate in candidates} == {0.0}
        orders.add(tuple(first))
    assert len(orders) == 6


def test_independent_siblings_that_are_equal_are_forwarded_once() -> None:
    certain = FixedLaw([[0.0, 1.0, 0.0]] * 3)
    tree = retriever(certain, drafts="iid", shape="tree", top_k=3, num_tokens=3)
    candidates = tree.propose(context([2, 0], random=TorchRandom.from_seed(0)), 64)
    assert drafts(candidates) == [(1, 1, 1)]
    assert certain.forwards == [1, 1, 1]


@pytest.mark.parametrize(
    ("shape", "plan"),
    [
        (Shape(depth=3, width=2, total=5, max_leaves=3), [[2], [2, 1]]),
        (Shape(depth=2, width=3, total=None, max_leaves=99), [[3], [3, 3, 3]]),
        (Shape(depth=3, width=3, total=99, max_leaves=2), [[2], [1, 1], [1, 1]]),
        (Shape(depth=4, width=1, total=None, max_leaves=1), [[1], [1], [1], [1]]),
        (Shape(depth=4, width=2, total=1, max_leaves=9), [[1]]),
    ],
)
def test_the_shape_of_sampled_trees_is_planned(shape: Shape, plan: list[list[int]]) -> None:
    assert plan_levels(shape) == plan


def outcome(num_kept: int, num_drafted: int) -> StepOutcome:
    """A step whose tree was a chain."""
    tree = DraftTree.from_nodes([1] * (num_drafted + 1), range(-1, num_drafted))
    ids = tree.token_ids[: num_kept + 1]
    return StepOutcome(token_ids=ids, pending_id=1, tree=tree, path=tuple(range(num_kept + 1)))


def test_the_heuristic_schedule_adds_two_or_takes_one() -> None:
    drafter = retriever(FixedLaw(SAME), schedule="heuristic", num_tokens=2)
    lengths = []
    drafter.begin(context([1, 1]))
    for step in (outcome(2, 2), outcome(3, 4), outcome(3, 3), outcome(0, 0), *[outcome(0, 4)] * 5):
        drafter.observe(step)
        (draft,) = drafts(drafter.propose(context([1, 1]), 1))
        lengths.append(len(draft))
    # Kept whole: 2 -> 4; one missed: 3; whole: 5; no draft: 5; then down to 1.
    assert lengths == [4, 3, 5, 5, 4, 3, 2, 1, 1]
    drafter.begin(context([1, 1]))
    assert len(drafts(drafter.propose(context([1, 1]), 1))[0]) == 2


def test_a_draft_ends_with_the_context_of_its_model() -> None:
    drafter = retriever(FixedLaw(SAME, max_context=6), num_tokens=3)
    lengths = [
        [len(draft) for draft in drafts(drafter.propose(context([1] * n), 1))] for n in range(3, 9)
    ]
    assert lengths == [[3], [3], [2], [1], [], []]
    drafter.begin(context([1] * 9))  # A prompt that does not fit is no error.


def test_without_a_draft_model() -> None:
    with pytest.raises(RuntimeError, match="'draft_model' has no draft model: attach one"):
        DraftModel().propose(context([1, 1]), 1)


def test_paths_and_leaves_of_the_deepest_chain() -> None:
    root = node = DraftNode(token_id=0)
    for token_id in range(1, MAX_DRAFT_NODES + 1):
        child = DraftNode(token_id=token_id, parent=node)
        node.children.append(child)
        node = child
    assert root.leaves() == [node]
    assert [one.token_id for one in node.path] == list(range(MAX_DRAFT_NODES + 1))


def test_leaves_come_depth_first_in_the_order_of_children() -> None:
    root = DraftNode(token_id=0)
    inner, last = DraftNode(token_id=1, parent=root), DraftNode(token_id=2, parent=root)
    below = [DraftNode(token_id=token_id, parent=inner) for token_id in (3, 4)]
    root.children, inner.children = [inner, last], below
    assert root.leaves() == [*below, last]
