"""Greedy and sampling on hand-worked trees, and the source of randomness behind them."""

from __future__ import annotations

import math

import pytest
import torch

from primitives.random_source import TorchRandom
from primitives.registry import VERIFIERS
from primitives.types import DraftTree
from support.enumeration import EnumeratingRandom, assert_same_law, exact_law
from support.toy import RefusesToDraw

#   0: 5
#     1: 6      2: 7
#       3: 7      4: 6
TREE = DraftTree.from_nodes([5, 6, 7, 7, 6], [-1, 0, 0, 1, 2])


def peaks(*token_ids: int) -> torch.Tensor:
    """One row of logits per token id, with its maximum there."""
    return torch.nn.functional.one_hot(torch.tensor(token_ids), 9).double()


def greedy(tree: DraftTree, logits: torch.Tensor) -> tuple[tuple[int, ...], int, tuple[str, ...]]:
    verdict = VERIFIERS.create("greedy").verify(tree, logits[0], logits, RefusesToDraw())
    return verdict.path, verdict.next_id, verdict.reasons


def test_greedy_walks_to_the_leaf_and_adds_a_bonus() -> None:
    assert greedy(TREE, peaks(7, 0, 6, 0, 8)) == ((0, 2, 4), 8, ("pending", "em", "em"))


def test_greedy_stops_where_no_child_carries_the_argmax() -> None:
    assert greedy(TREE, peaks(6, 8, 6, 0, 8)) == ((0, 1), 8, ("pending", "em"))
    assert greedy(TREE, peaks(1, 8, 6, 0, 8)) == ((0,), 1, ("pending",))


def test_greedy_breaks_ties_by_the_smaller_id() -> None:
    logits = torch.zeros(5, 9, dtype=torch.float64)
    logits[0, [6, 7]] = 1.0
    assert greedy(TREE, logits)[:2] == ((0, 1), 0)
    assert VERIFIERS.create("greedy").choose(logits[0], RefusesToDraw()) == 6


def sampling_law(tree: DraftTree, *probs: list[float]) -> dict[tuple[tuple[int, ...], int], float]:
    """The law of (path, next id) for given target probabilities per node."""
    logits = torch.tensor(probs, dtype=torch.float64).log()

    def run(random: EnumeratingRandom) -> tuple[tuple[int, ...], int]:
        verdict = VERIFIERS.create("sampling").verify(tree, logits[0], logits, random)
        return verdict.path, verdict.next_id

    return exact_law(run)


def test_sample_and_match_keeps_a_node_with_its_own_probability() -> None:
    tree = DraftTree.from_nodes([0, 1, 2], [-1, 0, 0])
    law = sampling_law(tree, [0.2, 0.5, 0.3], [1, 0, 0], [0, 1, 0])
    assert_same_law(law, {((0, 1), 0): 0.5, ((0, 2), 1): 0.3, ((0,), 0): 0.2})


def test_ratio_test_on_a_chain() -> None:
    # Draft token 0 from q = (1/2, 1/2), target p = (1/4, 3/4): kept with (1/4) / (1/2) = 1/2;
    # the residual of (p - q) is all on token 1.
    probs = torch.tensor([[0.0, 0.0], [0.5, 0.5]])
    tree = DraftTree.from_nodes([1, 0], [-1, 0], draft_probs=probs)
    law = sampling_law(tree, [0.25, 0.75], [0.0, 1.0])
    assert_same_law(law, {((0, 1), 1): 0.5, ((0,), 1): 0.5})


def test_ratio_test_on_siblings_without_replacement() -> None:
    # q = (1/2, 1/4, 1/4), p = (1/8, 3/8, 1/2); children 0, then 1.
    # Child 0: kept with (1/8) / (1/2) = 1/4; else p - q leaves (0, 1/8, 1/4), so p = (0, 1/3, 2/3).
    # q without token 0 is (0, 1/2, 1/2). Child 1: kept with (1/3) / (1/2) = 2/3; else token 2.
    row = [0.5, 0.25, 0.25]
    tree = DraftTree.from_nodes([2, 0, 1], [-1, 0, 0], draft_probs=torch.tensor([row, row, row]))
    law = sampling_law(tree, [0.125, 0.375, 0.5], [1, 0, 0], [0, 1, 0])
    assert_same_law(law, {((0, 1), 0): 1 / 4, ((0, 2), 1): 3 / 4 * 2 / 3, ((0,), 2): 1 / 4})


def test_draft_equal_to_the_target_is_always_kept() -> None:
    row = [0.3, 0.7]
    tree = DraftTree.from_nodes(
        [0, 1], [-1, 0], draft_probs=torch.tensor([row, row], dtype=torch.float64)
    )
    assert_same_law(sampling_law(tree, row, [1, 0]), {((0, 1), 0): 1.0})


def test_token_that_its_distribution_excludes_is_refused() -> None:
    tree = DraftTree.from_nodes([0, 1], [-1, 0], draft_probs=torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    with pytest.raises(ValueError, match="node 1 carries token 1, which its draft_probs exclude"):
        sampling_law(tree, [0.5, 0.5], [1, 0])


def test_same_seed_same_draws() -> None:
    weights = torch.tensor([0.1, 0.2, 0.7])
    first, second = (
        [TorchRandom.from_seed(3).categorical(weights) for _ in range(5)],
        [TorchRandom.from_seed(3).categorical(weights) for _ in range(5)],
    )
    assert first == second
    source = TorchRandom.from_seed(3)
    assert len({source.categorical(weights) for _ in range(50)}) > 1


@pytest.mark.parametrize(("draw", "index"), [(0.0, 1), (1 - 2**-53, 2)])
def test_extreme_draws_skip_tokens_without_weight(
    draw: float, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "rand", lambda *_, dtype, **__: torch.tensor(draw, dtype=dtype))
    weights = torch.tensor([0.0, 0.1, 0.2, 0.0])
    assert TorchRandom.from_seed(0).categorical(weights) == index


def test_draws_follow_their_weights() -> None:
    """A back-up for the exact checks, which never use this source; five standard errors wide."""
    source, num_draws = TorchRandom.from_seed(0), 4000
    weights = torch.tensor([1.0, 0.0, 3.0, 4.0, 0.0], dtype=torch.float32)
    draws = [source.categorical(weights) for _ in range(num_draws)]
    for index, prob in enumerate((weights / weights.sum()).tolist()):
        tolerance = 5 * math.sqrt(prob * (1 - prob) / num_draws)
        assert abs(draws.count(index) / num_draws - prob) <= tolerance
    heads = sum(source.bernoulli(0.3) for _ in range(num_draws))
    assert abs(heads / num_draws - 0.3) < 5 * math.sqrt(0.21 / num_draws)


def test_bernoulli_clamps() -> None:
    source = TorchRandom.from_seed(0)
    assert all(source.bernoulli(1.5) for _ in range(20))
    assert not any(source.bernoulli(-0.5) for _ in range(20))


@pytest.mark.parametrize(
    "weights",
    [
        pytest.param([0.0, 0.0], id="zero"),
        pytest.param([1.0, math.nan], id="nan"),
        pytest.param([1.0, math.inf], id="infinity"),
        pytest.param([1.0, -0.5], id="negative"),
    ],
)
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights must be non-negative"):
        TorchRandom.from_seed(0).categorical(torch.tensor(weights))
