"""The judge's training: figures by hand, and heads on labels whose right answer is known."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.judge_labels import Mismatch
from benchmarks.judge_training import (
    Labels,
    auc,
    choose_l2,
    fit_head,
    folds_of,
    kept_out_of_fold,
    out_of_fold,
    rejecting_threshold,
    train,
)
from methods.judge_head import LinearHead, load_head
from methods.targets.facts import model_identity
from methods.targets.loading import ToyConfig

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "train_judge.py"
FINE = np.array([True, False, True, False])
ONE_FOLD = np.zeros(4, dtype=np.int64)


def mismatch(value: float, *, is_important: bool) -> Mismatch:
    return Mismatch(
        position=0, target_id=1, draft_id=2, is_important=is_important,
        hidden=torch.tensor([value, 1.0]),
    )  # fmt: skip


def noisy_labels(num_prompts: int, *, signal: float) -> Labels:
    """Ten labels per prompt; the first of eight features tells them apart as far as `signal`."""
    rng = np.random.default_rng(0)
    num = 10 * num_prompts
    is_fine = rng.random(num) < 0.5
    features = rng.normal(size=(num, 8))
    features[:, 0] += np.where(is_fine, signal, -signal)
    groups = np.repeat(np.arange(num_prompts), 10)
    return Labels(features=features, is_fine=is_fine, groups=groups)


def test_auc_counts_pairs() -> None:
    # Unimportant 0.9 and 0.4 against important 0.4 and 0.1: three wins and a tie.
    assert auc(FINE, np.array([0.9, 0.4, 0.4, 0.1]), ONE_FOLD) == pytest.approx(3.5 / 4)
    # In folds of two: 0.9 wins over 0.4, 0.4 over 0.1.
    assert auc(FINE, np.array([0.9, 0.4, 0.4, 0.1]), np.array([0, 0, 1, 1])) == 1.0
    assert auc(FINE, np.array([0.1, 0.2, 0.9, 0.8]), np.array([0, 0, 1, 1])) == 0.5
    with pytest.raises(ValueError, match="no fold has mismatches of both kinds"):
        auc(FINE, np.zeros(4), np.array([0, 1, 0, 1]))


def test_threshold_rejects_the_asked_share() -> None:
    is_fine = np.array([False] * 10 + [True])
    probs = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95, 0.9])
    assert rejecting_threshold(is_fine, probs, 0.9) == 0.8  # Only 0.95 is above it.
    assert rejecting_threshold(is_fine, probs, 0.85) == 0.8  # Eight and a half: nine.
    assert rejecting_threshold(is_fine, probs, 1.0) == 0.95
    assert rejecting_threshold(is_fine, probs, 0.0) == 0.0


def test_what_a_threshold_keeps_is_counted_where_it_was_not_chosen() -> None:
    """Thresholds are 0.9 for the first fold, 0.2 for the second; 0.9 for both would keep none."""
    is_fine = np.array([False, False, True, False, False, True])
    probs = np.array([0.1, 0.2, 0.5, 0.3, 0.9, 0.15])
    folds = np.array([0, 0, 0, 1, 1, 1])
    kept = kept_out_of_fold(is_fine, probs, folds, 1.0)
    assert kept.tolist() == [False, False, False, True, True, False]
    # All labels of the other fold are unimportant: nothing has to be rejected.
    only_one = np.array([False, True, True, True])
    kept = kept_out_of_fold(only_one, np.full(4, 0.5), np.array([0, 0, 1, 1]), 1.0)
    assert kept.tolist() == [True, True, False, False]


def test_prompts_are_dealt_out_whole() -> None:
    groups = np.array([3, 3, 5, 7, 8, 9, 11, 11])
    assert folds_of(groups).tolist() == [0, 0, 1, 2, 3, 4, 0, 0]
    assert folds_of(np.array([3, 5, 5])).tolist() == [0, 1, 1]


def test_no_head_judges_what_it_was_fitted_to() -> None:
    """A head that answers the mean group of its training labels: each group sees the other."""
    labels = Labels(
        features=np.zeros((4, 1)), is_fine=FINE, groups=np.array([1, 1, 3, 3], dtype=np.int64)
    )

    def fit(part: Labels) -> LinearHead:
        zero = torch.zeros(1)
        bias = torch.tensor(float(part.groups.mean()))
        return LinearHead(weights=zero, bias=bias, mean=zero, scale=zero + 1)

    log_odds = np.log(1 / (1 / out_of_fold(labels, fit) - 1))
    assert log_odds == pytest.approx([3, 3, 1, 1], rel=1e-5)


def test_fit_is_at_the_minimum() -> None:
    """One feature: standardised -1 and 1, three labels to one on each side; no penalty.

    The odds are then those of the sides, 1/3 and 3: weight ln 3, bias 0.
    """
    labels = Labels(
        features=np.array([[2.0], [6.0]]).repeat(4, axis=0),
        is_fine=np.array([True, False, False, False, True, True, True, False]),
        groups=np.arange(8),
    )
    head = fit_head(labels, 0.0)
    assert (float(head.mean), float(head.scale)) == (4.0, 2.0)
    assert float(head.weights) == pytest.approx(math.log(3), abs=1e-3)
    assert float(head.bias) == pytest.approx(0, abs=1e-3)
    assert 0 < float(fit_head(labels, 10.0).weights) < 0.5


def test_one_kind_of_labels_gives_its_share() -> None:
    part = noisy_labels(1, signal=1.0).only(np.array([True] + [False] * 9))
    head = fit_head(part, 1.0)
    share = 2 / 3 if part.is_fine[0] else 1 / 3  # (1 + 1) / (1 + 2), or (0 + 1) / (1 + 2).
    assert head(torch.zeros(1, 8)).tolist() == pytest.approx([share])


def test_training_finds_a_signal_and_no_more() -> None:
    head, _, held_out = train(noisy_labels(12, signal=2.0))
    assert held_out.auc > 0.95
    assert held_out.recall > 0.9
    assert held_out.rejected >= 0.9
    assert float(head.weights[0]) > 5 * float(head.weights[1:].abs().max())
    _, l2, nothing = train(noisy_labels(12, signal=0.0))
    assert abs(nothing.auc - 0.5) < 0.15
    assert l2 == choose_l2(noisy_labels(12, signal=0.0)) >= 1e3


def test_labels_that_teach_nothing_are_refused() -> None:
    good, bad = mismatch(1.0, is_important=False), mismatch(2.0, is_important=True)
    labels = Labels.of([[good, bad], [], [good]])
    assert labels.groups.tolist() == [0, 0, 2]
    assert labels.is_fine.tolist() == [True, False, True]
    assert labels.features.tolist() == [[1, 1], [2, 1], [1, 1]]
    with pytest.raises(ValueError, match="two prompts at least, got 2 of 1"):
        Labels.of([[good, bad], []])
    with pytest.raises(ValueError, match="all 2 mismatches are important"):
        Labels.of([[bad], [bad]])


@pytest.mark.slow
def test_script_trains_a_head_for_the_toy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "judge.safetensors"
    options = ["--alternatives", "top2", "--rouge", "0.5", "--max-mismatches", "4"]
    small = ["model=toy", "limit=6", "max_new_tokens=12", f"results_dir={tmp_path}/results"]
    main = runpy.run_path(str(SCRIPT))["main"]
    assert main(["--output", str(output), *options, *small]) == 0
    told = capsys.readouterr()
    assert "WARNING: dataset=quickstart does not say which answers are right" in told.err
    assert f"method=pld model=toy verifier=judge verifier.head={output}" in told.out
    _, facts = load_head(output, model_identity(ToyConfig().load().facts))
    assert 0 < facts.num_unimportant < facts.num_labels <= 24


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model=smolm2-135m"], "unknown model 'smolm2-135m'"),
        (["method=vanilla", "model=toy"], "method=vanilla drafts nothing"),
        (["model=toy", "limit=1"], "two prompts at least"),
    ],
)
def test_script_explains_mistakes(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(SCRIPT))["main"]
    output, own = tmp_path / "judge.safetensors", f"results_dir={tmp_path}/results"
    assert main(["--output", str(output), own, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()
