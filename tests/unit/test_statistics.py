"""Bootstrap over prompts: paired, clustered, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.statistics import (
    bootstrap,
    exp_ratio,
    point,
    quality_verdict,
    ratio,
    ratio_of_ratios,
    verdict,
)


def columns(*values):
    return np.array(values, dtype=np.float64).T


def test_statistics_are_functions_of_sums():
    assert point(columns([1, 2], [2, 4]), ratio) == 0.5
    assert point(columns([6, 2], [2, 2], [1, 1], [3, 5]), ratio_of_ratios) == (8 / 4) / (2 / 8)
    log = np.log([2.0, 8.0])
    assert point(columns(log, [1, 1]), exp_ratio) == pytest.approx(4.0)


def test_what_is_not_defined_is_none():
    assert point(columns([1, 2], [0, 0]), ratio) is None
    assert bootstrap(columns([1, 2], [0, 0]), ratio) is None
    assert point(columns([0, 0], [0, 0]), ratio) is None


def test_one_prompt_has_no_interval():
    assert bootstrap(columns([3.0], [2.0]), ratio) is None
    assert bootstrap(np.zeros((0, 2)), ratio) is None


def test_the_same_data_give_the_same_interval():
    data = np.random.default_rng(0).uniform(1, 2, (20, 2))
    assert bootstrap(data, ratio) == bootstrap(data, ratio)
    assert bootstrap(data, ratio) != bootstrap(data, ratio, seed=1)


def test_pairing_removes_what_prompts_have_in_common():
    lengths = np.array([1.0, 10.0, 100.0, 1000.0, 5.0])
    low, high = bootstrap(columns(2 * lengths, lengths), ratio)
    assert (low, high) == (2.0, 2.0)


def test_five_prompts_by_hand():
    # One prompt of five has ratio 6: the draws give 1 + how often it is drawn, 0 to 5 times with
    # probabilities .328 .410 .205 .051 .006 .0003. t(.975, 4) = 2.776 times sqrt(5/4) is 3.104,
    # and .00095 of a normal law lies beyond: .99905 falls on 5.
    low, high = bootstrap(columns([1, 1, 1, 1, 6], [1] * 5), ratio, num_resamples=20000)
    assert (low, high) == (1.0, 5.0)


def test_four_prompts_are_too_few():
    assert bootstrap(columns([1, 2, 3, 4], [1] * 4), ratio) is None
    assert verdict(None) == "too few prompts"


def test_the_interval_of_a_mean_is_the_normal_one():
    data = np.random.default_rng(1).normal(10.0, 2.0, 400)
    low, high = bootstrap(columns(data, np.ones(400)), ratio)
    half = 1.96 * data.std() / np.sqrt(400)
    assert low == pytest.approx(data.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(data.mean() + half, abs=0.1 * half)


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(2)
    covered = 0
    for _ in range(200):
        times = generator.lognormal(0.0, 0.5, (40, 1)) * generator.uniform(0.8, 1.2, (40, 2))
        low, high = bootstrap(times, ratio, num_resamples=500)
        covered += low <= 1.0 <= high
    assert 0.88 <= covered / 200 <= 0.99


@pytest.mark.parametrize("num_prompts", [5, 8, 16])
def test_few_prompts_do_not_make_intervals_too_narrow(num_prompts):
    """Equal arms: plain percentiles call 13 to 18 % of such runs a difference."""
    generator = np.random.default_rng(3)
    num_false = 0
    for _ in range(300):
        lengths = generator.lognormal(0.0, 0.5, (num_prompts, 1))
        times = lengths * generator.lognormal(0.0, 0.1, (num_prompts, 2))
        num_false += verdict(bootstrap(times, ratio, num_resamples=2000)) != "no difference"
    assert num_false / 300 <= 0.09


def test_an_interval_of_lucky_resamples_is_none():
    """One scored prompt of eight: in a third of the resamples vanilla scores 0."""
    vanilla = np.array([1.0, *[0.0] * 7])
    assert bootstrap(columns(0 * vanilla, vanilla), ratio) is None


def test_quality_verdicts():
    assert quality_verdict((0.1, 0.2)) == "better"
    assert quality_verdict((-0.2, -0.1)) == "worse"
    assert quality_verdict((-0.1, 0.1)) == "no difference"


def test_verdicts():
    assert verdict((1.01, 1.2)) == "faster"
    assert verdict((0.7, 0.99)) == "slower"
    assert verdict((0.9, 1.1)) == "no difference"
    assert verdict((1.0, 1.1)) == "no difference"
    assert verdict((0.2, 0.3), null=0.1) == "faster"
    assert verdict(None) == "too few prompts"
