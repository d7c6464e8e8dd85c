"""Margin-aware verification, worked by hand on logits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from primitives.types import Verdict
from primitives.verifiers.mars import Mars
from support.relaxed import chain, verify

NEAR = (10.0, 9.5, 1.0, 0.0)  # 9.5 / 10 = 0.95.
FAR = (10.0, 8.9, 1.0, 0.0)  # 8.9 / 10 = 0.89.


def mars(token_id: int, law: tuple[float, ...], **fields: Any) -> Verdict:
    logits = torch.tensor([law] * 2, dtype=torch.float64)
    return verify("mars", chain(token_id), logits=logits, **fields)


def test_near_runner_up_passes() -> None:
    verdict = mars(1, NEAR)
    assert (verdict.path, verdict.reasons) == ((0, 1), ("pending", "margin"))
    assert verdict.regrets == pytest.approx((0, 0.5))
    assert verdict.regret_bounds == pytest.approx((0, 0.5))
    assert mars(1, FAR).path == (0,)
    assert mars(1, (10.0, 9.0, 1.0, 0.0)).path == (0,)  # 0.9 is not above theta.
    assert mars(1, FAR, theta=0.85).path == (0, 1)


def test_third_token_never_passes() -> None:
    assert mars(2, (10.0, 9.9, 9.8, 0.0)).path == (0,)


def test_published_form_needs_a_positive_first_logit() -> None:
    for law in ((-1.0, -1.05, -5.0, -6.0), (0.0, -0.01, -5.0, -6.0)):
        verdict = mars(1, law)
        assert (verdict.path, verdict.regret_bounds) == ((0,), (0,))
        assert mars(1, law, form="margin").path == (0, 1)


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"form": "margin", "max_margin": 0.8}, 0.8),
        ({"form": "prob_ratio", "min_ratio": 0.5}, 0.693),
    ],
)
def test_margins_do_not_depend_on_a_constant(fields: dict[str, Any], limit: float) -> None:
    for constant in (-20.0, 0.0, 100.0):
        for margin in (limit - 0.01, limit + 0.01):
            law = (constant, constant - margin, constant - 9, constant - 9)
            assert mars(1, law, **fields).path == ((0, 1) if margin < limit else (0,))
    # The published ratio does: 108.9 / 110 = 0.99.
    assert mars(1, tuple(z + 100 for z in FAR)).path == (0, 1)


def test_bound_is_0_where_the_runner_up_does_not_pass() -> None:
    assert mars(0, FAR).regret_bounds == (0, 0)
    assert mars(0, NEAR).regret_bounds == pytest.approx((0, 0.5))
    assert mars(0, NEAR, theta=1.0).regret_bounds == (0, 0)


def test_eos_needs_an_exact_match() -> None:
    for eos_id in (0, 1):
        assert mars(1, NEAR, eos_ids=frozenset({eos_id})).path == (0,)
        assert mars(1, NEAR, eos_ids=frozenset({eos_id}), eos_requires_em=False).path == (0, 1)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("theta", 1.1, r"in \[0, 1\]"),
        ("max_margin", math.inf, "≥ 0 and finite"),
        ("min_ratio", 0.0, r"in \(0, 1\]"),
    ],
)
def test_bad_fields_are_refused(field: str, value: float, rule: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be {rule}, got {value}"):
        Mars(**{field: value})
