"""ARC-Decode, worked by hand: embeddings on the corners of a square, see `SQUARE`."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from primitives.random_source import RandomSource, TorchRandom
from primitives.registry import VERIFIERS
from primitives.types import DraftTree
from primitives.verifiers.arc import Arc
from support.enumeration import assert_same_law, exact_law
from support.relaxed import UNSURE, chain, rows, verify

# Token 0 is the argmax. U = min(0.1 * distance, 1 * regret^2):
#   token 1: min(0.3, ln(4/3)^2 = 0.083) = 0.083
#   token 2: min(0.3, ln(2)^2 = 0.480) = 0.3
#   token 3: min(0.6, ln(4)^2 = 1.922) = 0.6
# gamma = 0.5 * (1 - 0.3) = 0.35.
arc = partial(verify, "arc", c_e=0.1, c_l=1.0, tau_delta=0.5)
sampled = partial(arc, rule="sampling")


def test_small_risks_pass() -> None:
    verdict = arc(chain(1, 2, 0, 3))
    assert (verdict.path, verdict.next_id) == ((0, 1, 2, 3), 0)
    assert verdict.reasons == ("pending", "risk", "risk", "em")
    assert verdict.regrets == pytest.approx((0, math.log(4 / 3), math.log(2), 0))
    assert arc(chain(2), theta=0.5).path == (0,)  # gamma 0.25
    assert arc(chain(1), theta=0.5).path == (0, 1)


def test_the_cheaper_surrogate_counts() -> None:
    assert arc(chain(2), c_e=10.0).path == (0,)  # 0.480
    assert arc(chain(2), c_e=10.0, c_l=0.7).path == (0, 1)  # 0.336
    assert arc(chain(3), c_e=0.05, c_l=10.0).path == (0, 1)  # 0.3


def test_floor_and_its_bound() -> None:
    assert arc(chain(2), min_prob=0.25).path == (0,)
    assert arc(chain(1), min_prob=0.25).regret_bounds == pytest.approx((0, math.log(0.4 / 0.25)))
    assert arc(chain(1), min_prob=0.35).regret_bounds == (0,)
    assert arc(chain(1), min_prob=0.0).regret_bounds == ()


def test_dimensions_are_scaled_by_their_spread() -> None:
    wide = [(1000 * x, y) for x, y in ((0, 0), (0, 2), (2, 0), (2, 2))]
    assert arc(chain(2), embeddings=wide).path == (0, 1)


def outcome(tree: DraftTree, random: RandomSource, **fields: Any) -> tuple[str, int]:
    """The reason and the token that comes behind node 0."""
    verdict = sampled(tree, random=random, **fields)
    if len(verdict.path) == 1:
        return "drawn", verdict.next_id
    assert verdict.num_exact == 1 + (verdict.reasons[1] == "em")
    return verdict.reasons[1], int(tree.token_ids[verdict.path[1]])


def test_second_chance_of_a_rejected_token() -> None:
    # Token 2: a0 = 0.2, s = 1 - 0.3 / 0.35 = 1/7, and 0.8 * 0.25 / 7 for the second chance.
    kept = 0.2 + 0.2 / 7
    law = exact_law(partial(outcome, chain(2)))
    rest = 1 - kept  # Shared by 0.4, 0.3 and 0.1.
    expected = {
        ("em", 2): 0.2,
        ("risk", 2): 0.2 / 7,
        ("drawn", 0): rest * 0.5,
        ("drawn", 1): rest * 0.375,
        ("drawn", 3): rest * 0.125,
    }
    assert_same_law(law, expected, tolerance=1e-6)  # The spread has a small addend.


@pytest.mark.parametrize(
    ("token_id", "fields"), [(3, {}), (2, {"min_prob": 0.25}), (2, {"boost": 0.0})]
)
def test_no_second_chance(token_id: int, fields: dict[str, float]) -> None:
    law = exact_law(lambda random: outcome(chain(token_id), random, **fields)[0])
    assert_same_law(law, {"em": UNSURE[token_id], "drawn": 1 - UNSURE[token_id]})


def test_eos_has_no_second_chance() -> None:
    for eos_id in (0, 2):
        law = exact_law(
            lambda random, ids=frozenset({eos_id}): outcome(chain(2), random, eos_ids=ids)[0]
        )
        assert "risk" not in law
        assert arc(chain(2), eos_ids=frozenset({eos_id})).path == (0,)


FORK = DraftTree.from_nodes([0, 1, 2], [-1, 0, 0])


def next_law(tree: DraftTree, **fields: Any) -> dict[int, float]:
    return exact_law(lambda random: outcome(tree, random, boost=0.0, **fields)[1])


def test_siblings_without_relaxation() -> None:
    assert_same_law(next_law(FORK, siblings="exact"), dict(enumerate(UNSURE)))
    # Published: 1 with 0.3, 2 with 0.7 * 0.2, and 0.56 for 0 and 3 as 4 : 1.
    expected = {0: 0.448, 1: 0.3, 2: 0.14, 3: 0.112}
    assert_same_law(next_law(FORK, siblings="published"), expected)


def test_drafts_with_a_law() -> None:
    draft_law = (0.1, 0.2, 0.6, 0.1)
    laws: dict[str, dict[int, float]] = {}
    for siblings in ("exact", "published"):
        total = dict.fromkeys(range(4), 0.0)
        for token_id, weight in enumerate(draft_law):
            draft_probs = torch.tensor([draft_law] * 2, dtype=torch.float64)
            tree = DraftTree.from_nodes([0, token_id], [-1, 0], draft_probs=draft_probs)
            for other, share in next_law(tree, siblings=siblings).items():
                total[other] += weight * share
        laws[siblings] = total
    assert_same_law(laws["exact"], dict(enumerate(UNSURE)))
    # Token 2 is kept with 0.2 / 0.6, and never drawn after its rejection; 0 and 1 always pass.
    # From the rejected 0.4 the law draws (0.4, 0.3, 0, 0.1) / 0.8.
    expected = {0: 0.1 + 0.2, 1: 0.2 + 0.15, 2: 0.2, 3: 0.1 + 0.05}
    assert_same_law(laws["published"], expected)


def test_excluded_draft_token_is_refused() -> None:
    draft_probs = torch.tensor([[0.5, 0.5, 0.0, 0.0]] * 2, dtype=torch.float64)
    tree = DraftTree.from_nodes([0, 2], [-1, 0], draft_probs=draft_probs)
    with pytest.raises(ValueError, match="node 1 carries token 2, which its draft_probs exclude"):
        sampled(tree, random=TorchRandom.from_seed(0))


def test_the_rule_decides_whether_it_samples() -> None:
    assert not Arc().samples
    sampling = Arc(rule="sampling")
    assert sampling.samples
    assert_same_law(
        exact_law(lambda random: sampling.choose(rows(UNSURE)[0], random)), dict(enumerate(UNSURE))
    )


def test_embeddings_are_needed() -> None:
    verifier = VERIFIERS.create("arc")
    with pytest.raises(ValueError, match="'arc' needs the target's embeddings"):
        verifier.verify(chain(1), rows(UNSURE)[0], rows(UNSURE, UNSURE), TorchRandom.from_seed(0))
    with pytest.raises(TypeError, match="verifier 'arc' needs no head"):
        verifier.attach(head=None)
    with pytest.raises(ValueError, match=r"two rows or more, got the shape \[1, 2\]"):
        verifier.attach(embeddings=torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("c_e", -1.0, "≥ 0 and finite"),
        ("c_l", math.inf, "≥ 0 and finite"),
        ("tau_delta", 0.0, "> 0 and finite"),
        ("theta", 1.0, r"in \[0, 1\)"),
        ("min_prob", 1.5, r"in \[0, 1\]"),
        ("boost", -0.5, r"in \[0, 1\]"),
    ],
)
def test_bad_fields_are_refused(field: str, value: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be {rule}, got {value}"):
        Arc(**{field: value})
