"""Typical acceptance, worked by hand."""

from __future__ import annotations

import math
from functools import partial

import pytest

from primitives.verifiers.typical import Typical
from support.relaxed import SURE, UNSURE, chain, verify

typical = partial(verify, "typical")


def test_threshold_falls_with_the_entropy() -> None:
    # UNSURE: min(0.3, exp(-1.280)) = 0.278, between 0.3 and 0.2.
    verdict = typical(chain(1, 0, 2), delta=1.0)
    assert (verdict.path, verdict.reasons) == ((0, 1, 2), ("pending", "typical", "em"))
    assert verdict.next_id == 0
    assert verdict.regrets == pytest.approx((0, math.log(4 / 3), 0))
    assert verdict.num_exact == 1


def test_epsilon_caps_the_threshold() -> None:
    # min(0.15, 0.278) = 0.15, between 0.2 and 0.1.
    assert typical(chain(2), epsilon=0.15, delta=1.0).path == (0, 1)
    assert typical(chain(3), epsilon=0.15, delta=1.0).path == (0,)


def test_published_defaults() -> None:
    # UNSURE: 0.09 * 0.278 = 0.025 < 0.1. SURE: 0.09 * exp(-0.168) = 0.076 > 0.01.
    assert typical(chain(3)).path == (0, 1)
    assert typical(chain(1), [SURE] * 2).path == (0,)


def test_law_is_judged_at_its_temperature() -> None:
    # At T = 0.5 UNSURE is (0.16, 0.09, 0.04, 0.01) / 0.3 with 1.0785 nats: 0.5 * 0.340 = 0.170 is
    # between 0.3 and 0.133. At T = 1: 0.5 * 0.278 = 0.139 < 0.2.
    assert typical(chain(2), delta=0.5).path == (0, 1)
    assert typical(chain(2), delta=0.5, temperature=0.5).path == (0,)
    verdict = typical(chain(1), delta=0.5, temperature=0.5)
    assert verdict.path == (0, 1)
    # 0.5 * (ln 0.5333 - ln 0.1701), in the units of the target's own law.
    assert verdict.regret_bounds == pytest.approx(
        (0, 0.5 * (math.log(0.16 / 0.3) + 1.7716)), abs=1e-4
    )


def test_bound_is_the_distance_to_the_threshold_where_it_lets_any_pass() -> None:
    # UNSURE: ln 0.4 + 1.280; SURE: nothing but the argmax passes.
    verdict = typical(chain(1, 0), [UNSURE, SURE, SURE], delta=1.0)
    assert verdict.regret_bounds == pytest.approx((0, math.log(0.4) + 1.2799, 0), abs=1e-4)


def test_eos_needs_an_exact_match() -> None:
    for eos_id in (0, 1):
        assert typical(chain(1, 0), eos_ids=frozenset({eos_id})).path == (0,)
        relaxed = typical(chain(1, 0), eos_ids=frozenset({eos_id}), eos_requires_em=False)
        assert relaxed.path == (0, 1, 2)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("epsilon", 0.0, r"in \(0, 1\]"),
        ("epsilon", 1.5, r"in \(0, 1\]"),
        ("delta", 0.0, "> 0 and finite"),
        ("temperature", math.inf, "> 0 and finite"),
    ],
)
def test_bad_fields_are_refused(field: str, value: float, rule: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be {rule}, got {value}"):
        Typical(**{field: value})
