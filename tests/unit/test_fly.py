"""FLy, worked by hand: `=` is a match, `x` a mismatch."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from primitives.types import DraftTree
from primitives.verifiers.fly import Fly
from support.relaxed import SURE, chain, verify

fly = partial(verify, "fly")
TWO = (0.9, 0.1, 0.0, 0.0)  # 0.325 nats, 0.23 of the largest entropy.


def draft(picture: str) -> DraftTree:
    """A chain from node 0 on."""
    return chain(*(0 if mark == "=" else 1 for mark in picture[1:]))


@pytest.mark.parametrize(
    ("picture", "rule", "num_kept"),
    [
        # W = 3. The mismatch at 1 of K = 4 drafts: 1 + 3 <= 4.
        ("=x===", "code", 5),
        ("=x===", "paper", 5),
        # Code wants matches at 2 and 3, the paper at 4 too.
        ("=x==x", "code", 4),
        ("=x==x", "paper", 1),
        # K = 3: too near the end for both, though code's window is full of matches.
        ("=x==", "code", 1),
        ("=x==", "paper", 1),
        # A second mismatch in the window.
        ("=xx====", "code", 1),
        ("=x=x===", "code", 1),
        # Lone mismatches at 1 and 4 of K = 7.
        ("=x==x===", "code", 8),
        ("=x==x===", "paper", 1),
        ("==x===x==", "paper", 6),
    ],
)
def test_windows(picture: str, rule: str, num_kept: int) -> None:
    verdict = fly(draft(picture), rule=rule, window=3)
    words = {"=": "em", "x": "window"}
    assert verdict.reasons[1:] == tuple(words[mark] for mark in picture[1:num_kept])
    assert verdict.regret_bounds == ()


def test_published_window_is_six() -> None:
    assert len(fly(draft("=x======")).path) == 8
    assert len(fly(draft("=x=====")).path) == 1  # K = 6 < 1 + 6.


@pytest.mark.parametrize(
    ("law", "fields", "is_open"),
    [
        # SURE: the first three contribute 0.0296 + 2 * 0.0461 = 0.122 nats; 0.168 / ln 4 = 0.12.
        (SURE, {"gate": "top3"}, False),
        (SURE, {"gate": "top3", "theta": 0.12}, True),
        (SURE, {"gate": "norm"}, False),
        (SURE, {"gate": "norm", "theta": 0.13}, False),
        (SURE, {"gate": "norm", "theta": 0.12}, True),
        (SURE, {"gate": "none"}, True),
        # TWO: 0.325 nats are enough, 0.23 of ln 4 are not.
        (TWO, {"gate": "top3"}, True),
        (TWO, {"gate": "norm"}, False),
    ],
)
def test_gates(law: tuple[float, ...], fields: dict[str, Any], is_open: bool) -> None:
    verdict = fly(draft("=x==="), [law] * 5, window=3, **fields)
    assert len(verdict.path) == (5 if is_open else 1)


def test_each_path_is_judged_by_itself() -> None:
    #   0: 0
    #     1: 1 (mismatch)
    #       2: 1 (mismatch)                  on 0-1-2 the window is not clean
    #       3: 0   4: 0   5: 0 (matches)     on 0-1-3-4-5 it is
    tree = DraftTree.from_nodes([0, 1, 1, 0, 0, 0], [-1, 0, 1, 1, 3, 4])
    verdict = fly(tree, window=3)
    assert (verdict.path, verdict.num_exact) == ((0, 1, 3, 4, 5), 1)


def test_eos_needs_an_exact_match() -> None:
    for eos_id in (0, 1):
        eos_ids = frozenset({eos_id})
        assert fly(draft("=x==="), window=3, eos_ids=eos_ids).path == (0,)
        relaxed = fly(draft("=x==="), window=3, eos_ids=eos_ids, eos_requires_em=False)
        assert len(relaxed.path) == 5


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("theta", -0.1, "≥ 0"),
        ("window", 0, "≥ 1"),
    ],
)
def test_bad_fields_are_refused(field: str, value: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be {rule}, got {value}"):
        Fly(**{field: value})
