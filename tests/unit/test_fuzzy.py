"""Fuzzy speculative decoding, worked by hand."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from primitives.types import DraftTree
from primitives.verifiers.fuzzy import Fuzzy
from support.relaxed import SURE, UNSURE, chain, verify

fuzzy = partial(verify, "fuzzy")
DRAFT_LAW = (0.5, 0.3, 0.1, 0.1)


def drafted(*token_ids: int) -> DraftTree:
    """A chain whose tokens come from `DRAFT_LAW`."""
    draft_probs = torch.tensor([DRAFT_LAW] * (len(token_ids) + 1), dtype=torch.float64)
    return DraftTree.from_nodes([0, *token_ids], range(-1, len(token_ids)), draft_probs=draft_probs)


@pytest.mark.parametrize(
    ("divergence", "value"),
    [
        # p = (0.4, 0.3, 0.2, 0.1), q = (0.5, 0.3, 0.1, 0.1), m = (0.45, 0.3, 0.15, 0.1).
        ("tv", 0.1),  # (0.1 + 0.1) / 2
        ("kl_qp", 0.0423),  # 0.5 ln 1.25 + 0.1 ln 0.5
        ("kl_pq", 0.0494),  # 0.4 ln 0.8 + 0.2 ln 2
        ("js", 0.0113),  # (0.0104 + 0.0121) / 2
        ("js_code", 0.0116),  # (0.0099 + 0.0134) / 2
    ],
)
def test_divergence_of_the_laws_decides_whatever_the_token(divergence: str, value: float) -> None:
    for token_id in (1, 2, 3):
        below = fuzzy(drafted(token_id), divergence=divergence, threshold=value - 1e-4)
        above = fuzzy(drafted(token_id), divergence=divergence, threshold=value + 1e-4)
        assert (below.path, above.path) == ((0,), (0, 1))
        assert above.reasons == ("pending", "divergence")
        assert above.regret_bounds == ()


@pytest.mark.parametrize(
    ("divergence", "threshold", "is_kept"),
    [
        # Of tokens 1, 2, 3 with p = 0.3, 0.2, 0.1.
        ("tv", 0.75, [True, False, False]),  # 1 - p
        ("kl_qp", 1.4, [True, False, False]),  # -ln p: 1.204, 1.609
        ("js", 0.4, [True, False, False]),  # 0.342, 0.423
        ("js", 0.43, [True, True, False]),
        ("kl_pq", 50.0, [False, False, False]),
        ("js_code", 50.0, [False, False, False]),
    ],
)
def test_point_masses_meet_a_threshold_of_probability(
    divergence: str, threshold: float, is_kept: list[bool]
) -> None:
    fields = {"divergence": divergence, "threshold": threshold}
    assert [len(fuzzy(chain(token), **fields).path) == 2 for token in (1, 2, 3)] == is_kept


def test_bound_of_point_masses_is_the_distance_to_that_threshold() -> None:
    verdict = fuzzy(chain(1, 0), [UNSURE, SURE, SURE], divergence="tv", threshold=0.75)
    assert verdict.regret_bounds == pytest.approx((0, math.log(0.4 / 0.25), 0))
    bound = fuzzy(chain(1), divergence="kl_qp", threshold=1.4).regret_bounds[1]
    assert bound == pytest.approx(math.log(0.4) + 1.4)
    # JS: the least probability p solves ln 2 + (p ln p - (1 + p) ln(1 + p)) / 2 = 0.4.
    p = 0.4 * math.exp(-fuzzy(chain(1)).regret_bounds[1])
    assert math.log(2) + (p * math.log(p) - (1 + p) * math.log(1 + p)) / 2 == pytest.approx(0.4)
    for unbounded in ({"threshold": 0.7}, {"top_k": 2}, {"divergence": "tv", "threshold": 1.0}):
        assert fuzzy(chain(1), **unbounded).regret_bounds == ()
    assert not any(fuzzy(chain(0), divergence="kl_pq").regret_bounds)


def test_rest_of_the_vocabulary_counts_as_one_token() -> None:
    # k = 1: p = (0.4, 0.6); a point mass on token 2 is (0, 1): TV 0.4 instead of 0.8.
    tv = partial(fuzzy, chain(2), divergence="tv", threshold=0.5)
    assert (tv().path, tv(top_k=1).path) == ((0,), (0, 1))
    # k = 2: q = (0.5, 0.3, 0.2), p = (0.4, 0.3, 0.3).
    assert fuzzy(drafted(3), divergence="tv", threshold=0.11, top_k=2).path == (0, 1)
    assert fuzzy(drafted(3), divergence="tv", threshold=0.09, top_k=2).path == (0,)
    assert fuzzy(chain(2), divergence="tv", threshold=0.5, top_k=9).path == (0,)


def test_exact_matches_pass_any_divergence() -> None:
    assert fuzzy(drafted(0, 0), threshold=0.0).path == (0, 1, 2)


def test_eos_needs_an_exact_match() -> None:
    for eos_id in (0, 1):
        assert fuzzy(chain(1), eos_ids=frozenset({eos_id})).path == (0,)
        assert fuzzy(chain(1), eos_ids=frozenset({eos_id}), eos_requires_em=False).path == (0, 1)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("threshold", math.inf, "≥ 0 and finite"),
        ("top_k", -1, "≥ 0"),
    ],
)
def test_bad_fields_are_refused(field: str, value: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be {rule}, got {value}"):
        Fuzzy(**{field: value})
