"""Top-k acceptance, worked by hand."""

from __future__ import annotations

import math
from functools import partial

import pytest

from primitives.verifiers.topk import TopK
from support.relaxed import SURE, UNSURE, chain, verify

topk = partial(verify, "topk")
FLAT = (0.4, 0.2, 0.2, 0.2)


def test_the_k_most_probable_tokens_pass() -> None:
    verdict = topk(chain(1, 0, 2), k=2)
    assert (verdict.path, verdict.reasons) == ((0, 1, 2), ("pending", "topk", "em"))
    assert verdict.regrets == pytest.approx((0, math.log(4 / 3), 0))
    assert topk(chain(2), k=3).path == (0, 1)
    assert topk(chain(1), [SURE] * 2).path == (0, 1)  # However sure the target is.
    assert topk(chain(1), k=1).path == (0,)


def test_floor() -> None:
    assert topk(chain(1), min_prob=0.25).path == (0, 1)
    assert topk(chain(2), min_prob=0.25).path == (0,)
    assert topk(chain(0), min_prob=0.5).path == (0, 1)  # The argmax passes any floor.


def test_equal_logits_rank_by_id() -> None:
    assert topk(chain(1), [FLAT] * 2, k=2).path == (0, 1)
    assert topk(chain(2), [FLAT] * 2, k=2).path == (0,)


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({"k": 3}, math.log(0.4 / 0.2)),
        ({"k": 3, "min_prob": 0.25}, math.log(0.4 / 0.25)),
        ({"k": 3, "min_prob": 0.15}, math.log(0.4 / 0.2)),
        ({"k": 3, "min_prob": 0.35}, 0.0),  # 0.3 is below it: only the argmax passes.
        ({"k": 1}, 0.0),
    ],
)
def test_bounds(fields: dict[str, float], bound: float) -> None:
    assert topk(chain(0), [UNSURE] * 2, **fields).regret_bounds == pytest.approx((0, bound))


def test_eos_needs_an_exact_match() -> None:
    for eos_id in (0, 1):
        assert topk(chain(1), eos_ids=frozenset({eos_id})).path == (0,)
        assert topk(chain(1), eos_ids=frozenset({eos_id}), eos_requires_em=False).path == (0, 1)


def test_bad_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="k must be ≥ 1, got 0"):
        TopK(k=0)
    with pytest.raises(ValueError, match=r"min_prob must be in \[0, 1\], got 1.5"):
        TopK(min_prob=1.5)
