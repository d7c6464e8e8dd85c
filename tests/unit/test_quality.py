"""Measures of what a relaxed method did to the output, worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.metrics import summarize
from benchmarks.quality import repetition_index, rouge_l
from support.rows import make_row, make_turn, path, vanilla_steps


def test_rouge_l_is_f1_of_the_longest_common_subsequence():
    # the cat sat / the dog sat: "the sat" is 2 of 3 words on both sides.
    assert rouge_l("the cat sat", "The dog sat.") == pytest.approx(2 / 3)
    # a b c d / a d: precision 2/2, recall 2/4.
    assert rouge_l("a b c d", "a d") == pytest.approx(2 * 1 * 0.5 / 1.5)
    assert rouge_l("", "") == 1.0
    assert rouge_l("", "word") == 0.0
    assert rouge_l("!", "?") == 1.0
    assert rouge_l("Привет, мир", "привет мир!") == 1.0
    # Two of three characters: 東 京 都 / 東 京 市.
    assert rouge_l("東京都", "東京市") == pytest.approx(2 / 3)


def test_repetition_index_counts_4grams_that_came_before():
    assert repetition_index([1, 2, 3, 4, 5]) == 0.0
    # 1 2 1 2 1 2: the 4-grams are 1212, 2121, 1212.
    assert repetition_index([1, 2, 1, 2, 1, 2]) == pytest.approx(1 / 3)
    assert repetition_index([7] * 10) == pytest.approx(6 / 7)
    assert repetition_index([1, 2, 3]) == 0.0


def rows():
    """Six output tokens of a method: 2 steps, a relaxed node with regret 0.6 of at most 0.9."""
    steps = [
        (3, path("topk", "em"), (0.0, 0.6, 0.0), (0.0, 0.9, 0.4)),
        (2, path("em"), (), ()),
    ]
    return [
        make_row("p", "vanilla", make_turn(vanilla_steps(5), wall_ns=500, text="the cat sat")),
        make_row("p", "method", make_turn(steps, wall_ns=400, text="the dog sat")),
    ]


def test_regret_bound_similarity_and_compression():
    metrics = summarize(rows(), is_greedy=True, is_lossless=False)["metrics"]
    assert metrics["regret"]["value"] == pytest.approx(0.6 / 5)
    # Two of five tokens were gated, the largest gap is 0.9.
    assert metrics["regret_bound"]["value"] == pytest.approx(2 / 5 * 0.9)
    assert metrics["rouge_l"]["value"] == pytest.approx(2 / 3)
    # 6 + 4 candidate tokens share 3 + 2 nodes.
    assert metrics["compression"]["value"] == pytest.approx(1 - 5 / 10)
    # Strictly, the first step would have given one token, the second both.
    assert metrics["strict_tau"]["value"] == pytest.approx((1 + 2) / 2)


def test_a_lossless_method_has_no_quality_columns():
    metrics = summarize(rows(), is_greedy=True, is_lossless=True)["metrics"]
    assert not {"regret", "rouge_l", "regret_bound"} & set(metrics)
