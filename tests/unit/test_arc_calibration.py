"""The constants of verifier `arc`: quantiles by hand, divergences on the toy target."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path

import pytest
import torch

from benchmarks.arc_calibration import Swap, collect_swaps, fit, next_divergence
from methods.targets.toy import ToyTarget
from primitives.structures.scaled_embeddings import ScaledEmbeddings
from support.toy import greedy_continuation

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "calibrate_arc.py"


def test_constants_are_quantiles_of_ratios() -> None:
    swaps = [
        Swap(divergence=0.1, embedding=1.0, logit=1.0),
        Swap(divergence=0.2, embedding=1.0, logit=4.0),
        Swap(divergence=0.3, embedding=2.0, logit=1.0),
    ]
    constants = fit(swaps, level=0.5, theta=0.5)
    assert constants.c_e == pytest.approx(0.15)  # Of 0.1, 0.2, 0.15.
    assert constants.c_l == pytest.approx(0.1)  # Of 0.1, 0.05, 0.3.
    # Risks: min(0.15, 0.1), min(0.15, 0.4), min(0.3, 0.1); their median is 0.1.
    assert constants.tau_delta == pytest.approx(0.1 / 0.5)


def test_outliers_and_equal_tokens_do_not_count() -> None:
    usual = [Swap(divergence=0.1, embedding=1.0, logit=1.0)] * 400
    odd = [
        Swap(divergence=0.5, embedding=1e-9, logit=1.0),
        Swap(divergence=0.5, embedding=0.0, logit=0.0),
    ]
    assert fit([*usual, *odd], level=0.999).c_e == pytest.approx(0.1)
    with pytest.raises(ValueError, match="no position with two different tokens"):
        fit(odd[1:])


def test_divergence_of_the_most_probable_tokens() -> None:
    p, q = torch.tensor([0.9, 0.1, 0.0]).log(), torch.tensor([0.5, 0.5, 0.0]).log()
    middle = (0.7, 0.3)
    expected = (
        0.9 * math.log(0.9 / middle[0])
        + 0.1 * math.log(0.1 / middle[1])
        + 0.5 * math.log(0.5 / middle[0])
        + 0.5 * math.log(0.5 / middle[1])
    ) / 2
    assert next_divergence(p, q) == pytest.approx(expected)
    # Their best are 0 and 1: (0.6, 0.2) -> (0.75, 0.25) and (0.2, 0.6) -> (0.25, 0.75).
    p, q = torch.tensor([0.6, 0.2, 0.2]).log(), torch.tensor([0.2, 0.6, 0.2]).log()
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert next_divergence(p, q, union_size=1) == pytest.approx(expected)
    assert next_divergence(p, p) == 0


def test_swaps_are_those_of_the_greedy_answer() -> None:
    target, prompt = ToyTarget(vocab_size=8, seed=1), [1, 2, 3]
    swaps = collect_swaps(target, ScaledEmbeddings.of(torch.eye(8)), prompt, 6)
    answer = greedy_continuation(target, prompt, 6)
    assert len(swaps) == len(answer) == 6
    for place, swap in enumerate(swaps):
        prefix = [*prompt, *answer[:place]]
        logits = target.logits(prefix)
        best, second = logits.topk(2).indices.tolist()
        assert best == answer[place]
        assert swap.logit == pytest.approx(float(logits[best] - logits[second]) ** 2)
        # Two ones in columns of eight entries with one 1: the variance is 1/8.
        assert swap.embedding == pytest.approx(2 * 8, rel=1e-4)
        after = [target.logits([*prefix, token]) for token in (best, second)]
        assert swap.divergence == pytest.approx(next_divergence(*after))


def test_answers_end_with_eos() -> None:
    target = ToyTarget(vocab_size=8, seed=1, eos_logit=50.0)
    assert len(collect_swaps(target, ScaledEmbeddings.of(torch.eye(8)), [1, 2], 6)) == 1


@pytest.mark.slow
def test_script_calibrates_whatever_shows_embeddings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = runpy.run_path(str(SCRIPT))["main"]
    options = ["model=toy", "limit=2", "max_new_tokens=8"]
    assert main(options) == 0
    assert re.match(r"verifier\.c_e=\S+ verifier\.c_l=\S+ verifier\.tau_d", capsys.readouterr().out)
    monkeypatch.delattr(ToyTarget, "embeddings")
    assert main(options) == 2
    assert "model=toy offers no input embeddings to calibrate on" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=smolm2-135m"], "unknown model 'smolm2-135m'"),
        (["dataset.split=nope"], "nope"),
    ],
)
def test_script_explains_mistakes(
    overrides: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(SCRIPT))["main"]
    assert main(overrides) == 2
    assert message in capsys.readouterr().err
