"""Rules that judge one token at a time, against a plain reading of their equations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from primitives.registry import VERIFIERS
from primitives.types import Verdict
from support.relaxed import bank, plain_path
from support.scenes import ScoredTree
from support.toy import RefusesToDraw

EMBEDDINGS = np.random.default_rng(0).normal(size=(8, 3))
Passes = Callable[[np.ndarray, int], bool]


def probs(law: np.ndarray) -> np.ndarray:
    weights = np.exp(law - law.max())
    return weights / weights.sum()


def entropy(law: np.ndarray) -> float:
    p = probs(law)
    return float(-(p * np.log(p)).sum())


def rank(law: np.ndarray, token_id: int) -> int:
    return int(np.argsort(-law, kind="stable").tolist().index(token_id))


def js(p: float) -> float:
    return math.log(2) + (p * math.log(p) - (1 + p) * math.log(1 + p)) / 2


def is_low_risk(law: np.ndarray, x: int) -> bool:
    """ARC with c_e = 0.05, c_l = 0.2, gamma = 0.35."""
    step = (EMBEDDINGS[x] - EMBEDDINGS[law.argmax()]) / (EMBEDDINGS.std(axis=0, ddof=1) + 1e-6)
    risk = min(0.05 * (step**2).sum(), 0.2 * (law.max() - law[x]) ** 2)
    return bool(probs(law)[x] >= 0.05 and risk <= 0.35)


CASES: list[tuple[str, dict[str, Any], Passes]] = [
    (
        "typical",
        {"epsilon": 0.2, "delta": 0.8},
        lambda law, x: probs(law)[x] > min(0.2, 0.8 * math.exp(-entropy(law))),
    ),
    (
        "typical",
        {"epsilon": 0.2, "delta": 0.8, "temperature": 1.5},
        lambda law, x: probs(law / 1.5)[x] > min(0.2, 0.8 * math.exp(-entropy(law / 1.5))),
    ),
    ("topk", {"k": 3}, lambda law, x: rank(law, x) < 3),
    ("topk", {"k": 4, "min_prob": 0.1}, lambda law, x: rank(law, x) < 4 and probs(law)[x] >= 0.1),
    (
        "mars",
        {"theta": 0.4},
        lambda law, x: law.max() > 0 and rank(law, x) == 1 and law[x] / law.max() > 0.4,
    ),
    (
        "mars",
        {"form": "margin", "max_margin": 1.2},
        lambda law, x: rank(law, x) == 1 and law.max() - law[x] < 1.2,
    ),
    (
        "mars",
        {"form": "prob_ratio", "min_ratio": 0.3},
        lambda law, x: rank(law, x) == 1 and probs(law)[x] / probs(law).max() > 0.3,
    ),
    ("fuzzy", {"threshold": 0.5}, lambda law, x: js(probs(law)[x]) <= 0.5),
    (
        "fuzzy",
        {"divergence": "kl_qp", "threshold": 2.1},
        lambda law, x: -math.log(probs(law)[x]) <= 2.1,
    ),
    ("arc", {"c_e": 0.05, "c_l": 0.2, "tau_delta": 0.5}, is_low_risk),
]


def judged(name: str, fields: dict[str, Any], scored: ScoredTree) -> Verdict:
    verifier = VERIFIERS.create(name, **fields)
    if "embeddings" in verifier.needs:
        verifier.attach(embeddings=torch.from_numpy(EMBEDDINGS))
    return verifier.verify(scored.tree, scored.last_logits, scored.logits, RefusesToDraw())


@pytest.mark.parametrize(("name", "fields", "passes"), CASES)
def test_equals_a_plain_reading_within_its_bounds(
    name: str, fields: dict[str, Any], passes: Passes
) -> None:
    num_relaxed = num_open = 0
    for scored in bank():
        verdict = judged(name, fields, scored)
        assert list(verdict.path) == plain_path(scored, passes)
        num_relaxed += sum(word not in ("pending", "em") for word in verdict.reasons)
        assert len(verdict.regret_bounds) == len(verdict.path)
        regrets = verdict.regrets or (0.0,) * len(verdict.path)
        for node, regret, bound in zip(verdict.path, regrets, verdict.regret_bounds, strict=True):
            assert regret <= bound + 1e-12
            if node > 0:
                law = scored.logits[scored.tree.parents[node]].numpy()
                others = [x for x in range(len(law)) if x != law.argmax() and passes(law, x)]
                assert all(law.max() - law[x] <= bound + 1e-9 for x in others)
                num_open += bound > 0
    assert num_relaxed > 5
    assert num_open > 5


def test_half_precision_logits() -> None:
    scored = bank()[-1]
    half = dataclasses.replace(
        scored, logits=scored.logits.bfloat16(), last_logits=scored.last_logits.bfloat16()
    )
    for name, fields, passes in CASES:
        rounded = dataclasses.replace(
            half, logits=half.logits.double(), last_logits=half.last_logits.double()
        )
        assert list(judged(name, fields, half).path) == plain_path(rounded, passes)
