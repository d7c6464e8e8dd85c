"""Metrics of hand-made rows against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.definitions import DEFINITIONS, define
from benchmarks.metrics import summarize
from benchmarks.records import RequestError
from benchmarks.scoring.score_rows import ScoreRow
from benchmarks.table import print_results
from support.rows import make_row, make_turn, path, two_prompts, vanilla_steps


def values(rows, *, is_greedy=True, is_lossless=True):
    summary = summarize(rows, is_greedy=is_greedy, is_lossless=is_lossless)
    return {name: metric["value"] for name, metric in summary["metrics"].items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tau", 8 / 5),
        ("tau_macro", (6 / 3 + 2 / 2) / 2),
        ("strict_tau", 8 / 5),
        ("vanilla_tau", 1.0),
        ("draft_coverage", 3 / 5),
        ("node_acceptance_rate", 3 / 10),
        ("draft_nodes", 10 / 5),
        ("accept@1", 2 / 5),
        ("accept@2", 1 / 5),
        ("accepted_by_reason.em", 1.0),
        ("output_tokens", 5.0),
        ("speedup", 1600 / 1300),
        ("speedup_rate", 1600 / 1300),
        ("decode_speedup", 1300 / 1000),
        ("decode_speedup_rate", 1300 / 1000),
        ("speedup_spec_bench", (7 / 500 + 3 / 800) / (7 / 1000 + 3 / 600)),
        ("speedup_geometric", math.sqrt(1000 / 500 * 600 / 800)),
        ("tokens_per_second", 10 / 1300e-9),
        ("vanilla_tokens_per_second", 10 / 1600e-9),
        ("phase_share.propose", 130 / 1000),
        ("phase_share.forward", 810 / 1000),
        ("phase_share.record", 40 / 1000),
        ("overhead", 190 / 1000),
        ("identical_outputs", 2),
        ("peak_memory", 1000),
    ],
)
def test_by_hand(name, value):
    assert values(two_prompts())[name] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("length_share", 1.0),
        ("vanilla_length_share", 1.0),
        ("repetition", 0.0),
        ("control_speedup", 1000 / 800),
        ("identical_to_control", 1),
        ("score.exact_match", 0.25),
        ("vanilla_score.exact_match", 0.5),
        ("relative_score.exact_match", 0.5),
    ],
)
def test_guards_control_and_scores_by_hand(name, value):
    control = make_row("a", "control", make_turn(vanilla_steps(6), wall_ns=800))
    scores = [
        score("a", "vanilla", 1.0),
        score("a", "method", 0.5),
        score("b", "vanilla", 0.0),
        score("b", "method", 0.0),
        score("gone", "method", 1.0),  # A prompt that failed elsewhere counts nowhere.
    ]
    summary = summarize([*two_prompts(), control], is_greedy=True, is_lossless=True, scores=scores)
    assert summary["metrics"][name]["value"] == pytest.approx(value)


def test_scores_of_a_category_are_its_own():
    scores = [score("a", "vanilla", 1.0), score("a", "method", 0.5)]
    summary = summarize(two_prompts(), is_greedy=True, is_lossless=True, scores=scores)
    assert summary["categories"]["x"]["score.exact_match"]["value"] == 0.5
    assert "score.exact_match" not in summary["categories"]["y"]


def score(prompt_id, arm, value):
    return ScoreRow(
        prompt_id=prompt_id, repeat=0, arm=arm, scorer="gsm8k", metric="exact_match", value=value,
        detail="",
    )  # fmt: skip


def test_every_metric_carries_its_definition():
    summary = summarize(two_prompts(), is_greedy=True, is_lossless=True)
    for name, metric in summary["metrics"].items():
        assert metric.keys() == {"value", "unit", "definition", "interval", "num_prompts"}
        assert metric["definition"] == define(name).definition_id
        assert metric["definition"] in summary["definitions"]
        assert metric["num_prompts"] == 2
    assert summary["metrics"]["tau"]["definition"] == (
        "tau.micro.emitted_per_forward.eos_clipped.no_prefill"
    )
    texts: dict[str, str] = {}
    for definition in DEFINITIONS.values():
        assert texts.setdefault(definition.definition_id, definition.text) == definition.text


def test_categories_have_their_own_numbers():
    categories = summarize(two_prompts(), is_greedy=True, is_lossless=True)["categories"]
    assert categories["x"]["tau"]["value"] == 2.0
    assert categories["y"]["tau"]["value"] == 1.0
    assert categories["x"]["speedup"]["value"] == 2.0
    assert categories["y"]["speedup"] == {
        "value": 0.75,
        "unit": "ratio",
        "definition": "speedup.sum_of_times.prefill_included",
        "interval": None,
        "num_prompts": 1,
    }


def relaxed_rows():
    """Steps of 3, 2, 2 and 1 tokens; exact verification would have taken 2, 1, 1 and 1 of them."""
    steps = [
        (5, path("em", "topk")),
        (5, path("topk")),
        (5, ("con", "em")),  # An alternative to pending was kept in its place.
        (5, path()),
    ]
    return [
        make_row("a", "vanilla", make_turn(vanilla_steps(10), wall_ns=1100)),
        make_row("a", "method", make_turn(steps, wall_ns=500, ids=range(9))),
    ]


def test_relaxed_verifiers_show_strict_tau_and_reasons():
    metrics = values(relaxed_rows(), is_lossless=False)
    assert metrics["tau"] == 8 / 4
    assert metrics["strict_tau"] == (2 + 1 + 1 + 1) / 4
    num_accepted = 2 + 1 + 2 + 0
    assert metrics["accepted_by_reason.topk"] == pytest.approx(2 / num_accepted)
    assert metrics["accepted_by_reason.con"] == pytest.approx(1 / num_accepted)
    assert metrics["accepted_by_reason.em"] == pytest.approx(2 / num_accepted)


def test_relaxed_verifiers_are_compared_by_the_token():
    summary = summarize(relaxed_rows(), is_greedy=True, is_lossless=False)
    assert summary["primary_speedup"] == "speedup_rate"
    assert not summary["has_equal_lengths"]
    assert summary["metrics"]["speedup"]["value"] == 1100 / 500
    assert summary["metrics"]["speedup_rate"]["value"] == pytest.approx((9 / 500) / (11 / 1100))
    assert summary["differences"] == [{"prompt_id": "a", "repeat": 0, "turn": 0, "position": 9}]


def test_a_relaxed_run_that_was_cut_within_a_repeat_has_metrics():
    whole, cut = relaxed_rows(), replace(relaxed_rows()[1], repeat=1)
    one, two = (
        summarize(rows, is_greedy=True, is_lossless=False)["metrics"]["rouge_l"]
        for rows in (whole, [*whole, cut])
    )
    assert one == two


def test_eos_inside_a_path_counts_nothing_behind_it():
    # Path of 4 nodes, the last of them EOS: 1 pending + 3 output tokens, 3 from the step.
    rows = [
        make_row("a", "vanilla", make_turn(vanilla_steps(3), wall_ns=400, ids=(5, 6, 7, 0))),
        make_row(
            "a", "method", make_turn([(5, path("em", "em", "em"))], wall_ns=100, ids=(5, 6, 7, 0))
        ),
    ]
    metrics = values(rows)
    assert metrics["tau"] == metrics["strict_tau"] == 3.0
    assert metrics["vanilla_tau"] == 1.0
    assert metrics["identical_outputs"] == 1


def test_answers_without_a_step():
    turn = make_turn([], wall_ns=10, prefill_ns=9)
    rows = [make_row("c", arm, turn) for arm in ("vanilla", "method")]
    metrics = values(rows)
    assert metrics["tau"] is None
    assert metrics["tau_macro"] is None
    assert metrics["speedup"] == 1.0
    both = values(rows + two_prompts())
    assert both["tau"] == 8 / 5
    assert both["tau_macro"] == 1.5


def test_turns_of_a_conversation_are_added_up():
    rows = [
        make_row("a", "vanilla", *[make_turn(vanilla_steps(3), wall_ns=100)] * 2),
        make_row("a", "method", *[make_turn([(2, path("em", "em"))], wall_ns=40)] * 2),
    ]
    metrics = values(rows)
    assert metrics["tau"] == 6 / 2
    assert metrics["output_tokens"] == 8
    assert metrics["speedup"] == 200 / 80


def test_repeats_count_as_one_prompt_with_its_median_time():
    rows = []
    for repeat, (slow, fast) in enumerate([(100, 50), (102, 48), (900, 49)]):
        rows.append(
            make_row("a", "vanilla", make_turn(vanilla_steps(2), wall_ns=slow), repeat=repeat)
        )
        rows.append(
            make_row("a", "method", make_turn([(2, path("em"))], wall_ns=fast), repeat=repeat)
        )
    summary = summarize(rows, is_greedy=True, is_lossless=True)
    assert summary["metrics"]["speedup"]["value"] == 102 / 49
    assert summary["metrics"]["speedup"]["num_prompts"] == 1
    assert summary["metrics"]["output_tokens"]["value"] == 3
    assert summary["unstable_prompts"] == []


def test_repeats_that_differ_are_named_in_greedy_decoding_and_averaged_in_sampling():
    rows = []
    for repeat, num_steps in enumerate([1, 2, 6]):
        for arm in ("vanilla", "method"):
            turn = make_turn(vanilla_steps(num_steps), wall_ns=100 * (num_steps + 1))
            rows.append(make_row("a", arm, turn, repeat=repeat))
    assert summarize(rows, is_greedy=True, is_lossless=True)["unstable_prompts"] == ["a"]
    summary = summarize(rows, is_greedy=False, is_lossless=True)
    assert summary["unstable_prompts"] == summary["differences"] == []
    assert "identical_outputs" not in summary["metrics"]
    # 12 tokens in 1200 ns: the median time (300 ns) for the mean length (4) would be wrong.
    assert summary["metrics"]["tokens_per_second"]["value"] == pytest.approx(1e7)


def test_a_failure_in_either_arm_takes_the_prompt_out_of_both():
    error = RequestError(type="ValueError", message="no")
    rows = two_prompts()
    for arm, other in (("vanilla", "method"), ("method", "vanilla")):
        rows.append(make_row(f"bad {arm}", arm, error=error))
        rows.append(make_row(f"bad {arm}", other, make_turn(vanilla_steps(9), wall_ns=1)))
    summary = summarize(rows, is_greedy=True, is_lossless=True)
    assert (summary["num_prompts"], summary["num_measured"], summary["num_failed"]) == (4, 2, 2)
    assert summary["metrics"] == summarize(two_prompts(), is_greedy=True, is_lossless=True)[
        "metrics"
    ] | {"peak_memory": summary["metrics"]["peak_memory"]}
    assert summary["failures"][0] == {
        "prompt_id": "bad vanilla",
        "arm": "vanilla",
        "repeat": 0,
        "type": "ValueError",
        "message": "no",
        "place": "",
    }


def test_nothing_measured_gives_no_metrics():
    rows = [make_row("a", "method", error=RequestError(type="ValueError", message="no"))]
    for requests in ([], rows):
        summary = summarize(requests, is_greedy=True, is_lossless=True)
        assert summary["metrics"] == summary["categories"] == {}
        assert summary["num_measured"] == 0


def test_half_a_pair_is_neither_measured_nor_failed():
    summary = summarize(two_prompts()[:3], is_greedy=True, is_lossless=True)
    assert (summary["num_prompts"], summary["num_measured"], summary["num_failed"]) == (2, 1, 0)


def test_generate_beside():
    rows = [*two_prompts(), make_row("b", "generate", make_turn(None, wall_ns=900, ids=(0, 1, 9)))]
    metrics = summarize(rows, is_greedy=True, is_lossless=True)["metrics"]
    assert metrics["generate_tokens_per_second"]["value"] == pytest.approx(3 / 900e-9)
    assert metrics["vanilla_over_generate"]["value"] == pytest.approx((3 / 600) / (3 / 900))
    assert metrics["vanilla_over_generate"]["num_prompts"] == 1
    assert metrics["identical_to_generate"]["value"] == 0


@pytest.mark.parametrize("is_lossless", [True, False])
def test_relaxed_results_are_shown_with_strict_tau(capsys, is_lossless):
    run = {
        "method": "m",
        "dataset": "d",
        "model": "t",
        "is_lossless": is_lossless,
        "has_exact_phases": True,
        "num_skipped_rows": 2,
        "datastores": {},
    }
    rows = [*relaxed_rows(), *two_prompts()[2:]]
    summary = summarize(rows, is_greedy=True, is_lossless=is_lossless)
    summary |= {"run": run, "is_one_machine": False}
    print_results(summary, Console(width=100))
    shown = capsys.readouterr().out
    for text in ("strict", "lengths differ", "another machine", "2 damaged dataset rows"):
        assert text in shown
    assert ("ids differ from vanilla's, first on prompt a" in shown) == is_lossless
