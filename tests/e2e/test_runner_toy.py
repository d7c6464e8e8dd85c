"""Whole runs on the toy target: what is measured, in which order, and what is written."""

from __future__ import annotations

import json
from itertools import groupby

import pytest
import yaml
from rich.console import Console

from benchmarks.clock import CLOCK_PHASES
from benchmarks.datasets.base import Prompt
from benchmarks.judging import summarize_folder
from benchmarks.runner import run
from benchmarks.session import WARMUP_PROMPTS
from benchmarks.table import print_results
from methods.sampling import SamplingLaw
from methods.targets.toy import ToyCodec
from support.runs import (
    TEXTS,
    HookedTarget,
    Memory,
    NoWords,
    make_dataset,
    make_method,
    make_spec,
    rows_of,
    status_of,
)


def test_a_run_writes_its_five_files(tmp_path):
    result = run(make_spec(tmp_path, repeats=2))
    assert result.failure is None
    assert not result.was_finished
    assert result.path == make_spec(tmp_path, repeats=2).path
    assert result.path.parent == tmp_path / "toy" / "toy" / "pld"
    assert yaml.safe_load((result.path / "config.yaml").read_text())["dataset"] == {"name": "toy"}
    env = json.loads((result.path / "env.json").read_text())
    assert env["run"]["run_id"] == result.path.name
    assert env["hashes"]["dataset"] == make_dataset().content_hash
    assert env["sessions"][0]["versions"]["torch"]
    status = status_of(result.path)
    assert (status["state"], status["num_rows"], status["num_error_rows"]) == ("done", 24, 0)
    assert json.loads((result.path / "summary.json").read_text()) == result.summary
    assert summarize_folder(result.path) == result.summary


def test_rows_hold_ids_steps_and_times_that_add_up(tmp_path):
    rows = rows_of(run(make_spec(tmp_path, repeats=2)).path)
    assert len(rows) == 24
    for row in rows:
        (turn,) = row.turns
        assert turn.prompt_ids == (
            tuple(ToyCodec().encode([("user", TEXTS[int(row.prompt_id[1:])])]))
            if row.repeat == 0
            else None
        )
        assert set(turn.phase_ns) == set(CLOCK_PHASES)
        assert sum(turn.phase_ns.values()) == turn.wall_ns
        in_steps = turn.wall_ns - turn.phase_ns["prefill"]
        assert 0 < sum(turn.steps.step_ns) <= in_steps
        assert sum(turn.steps.num_output) == len(turn.output_ids) - 1
        assert turn.text == ToyCodec().decode(turn.output_ids)


def test_metrics_of_a_run(tmp_path):
    summary = run(make_spec(tmp_path)).summary
    metrics = summary["metrics"]
    assert metrics["vanilla_tau"]["value"] == 1.0
    assert metrics["tau"]["value"] > 1.1
    assert metrics["strict_tau"]["value"] == metrics["tau"]["value"]
    assert metrics["identical_outputs"]["value"] == summary["num_measured"] == 6
    assert summary["categories"].keys() == {"even", "odd"}
    shares = [m["value"] for name, m in metrics.items() if name.startswith("phase_share.")]
    assert sum(shares) == pytest.approx(1.0)


def test_vanilla_measured_against_itself_is_the_control(tmp_path):
    law = SamplingLaw()
    summary = run(make_spec(tmp_path, method=make_method("vanilla", None, law))).summary
    metrics = summary["metrics"]
    assert metrics["tau"]["value"] == metrics["vanilla_tau"]["value"] == 1.0
    assert metrics["identical_outputs"]["value"] == 6
    assert metrics["draft_coverage"]["value"] == 0.0
    assert metrics["node_acceptance_rate"]["value"] is None
    print_results(summary, Console(width=100))


def test_arms_take_turns(tmp_path):
    rows = rows_of(run(make_spec(tmp_path, repeats=2)).path)
    pairs = [[row.arm for row in group] for _, group in groupby(rows, lambda r: r.key[:2])]
    forward, backward = ["vanilla", "method"], ["method", "vanilla"]
    assert pairs == [forward, backward] * 3 + [backward, forward] * 3
    assert all(row.order == index % 2 for index, row in enumerate(rows))


def test_generate_is_timed_beside_on_the_first_prompts(tmp_path):
    def generate(prompt_ids, max_new_tokens):
        target, ids = HookedTarget(), list(prompt_ids)
        for _ in range(max_new_tokens + 3):  # Ids behind EOS and budget must not count.
            ids.append(int(target.logits(ids).argmax()))
        return ids[len(prompt_ids) :]

    result = run(make_spec(tmp_path, generate=generate, num_generate_prompts=4))
    arms = [row.arm for row in rows_of(result.path)]
    assert arms[:9] == [
        "vanilla", "method", "generate",
        "method", "generate", "vanilla",
        "generate", "vanilla", "method",
    ]  # fmt: skip
    assert arms.count("generate") == 4
    metrics = result.summary["metrics"]
    assert metrics["identical_to_generate"]["value"] == 4
    assert metrics["vanilla_over_generate"]["num_prompts"] == 4


def test_generate_stays_out_of_sampling(tmp_path):
    law = SamplingLaw(temperature=1.0)
    spec = make_spec(tmp_path, law=law, generate=lambda ids, n: [1] * n, num_generate_prompts=4)
    assert {row.arm for row in rows_of(run(spec).path)} == {"vanilla", "method"}


def test_carry_and_reset_differ_and_warm_up_leaves_nothing(tmp_path):
    def first_drafts(state, warmup):
        spec = make_spec(tmp_path, retriever=Memory(), state=state, warmup=warmup)
        rows = [row for row in rows_of(run(spec).path) if row.arm == "method"]
        return [row.turns[0].steps.num_draft_nodes for row in rows]

    carried, reset = first_drafts("carry", 3), first_drafts("reset", 3)
    assert carried[0] == reset[0]
    assert carried[1:] != reset[1:]
    assert carried == first_drafts("carry", 0)


def test_warm_up_prompts_are_not_of_the_dataset(tmp_path):
    seen = []
    target = HookedTarget(hook=lambda ids: seen.append(tuple(ids)))
    run(make_spec(tmp_path, target=target, warmup=2))
    warm = [tuple(ToyCodec().encode([("user", p.turns[0])])) for p in WARMUP_PROMPTS[:2]]
    assert seen[:4] == [warm[0], warm[0], warm[1], warm[1]]
    assert len(seen) == 4 + 12


def two_turns(*references):
    return make_dataset(
        [Prompt(prompt_id="x", category="chat", turns=("tell me", "more"), references=references)]
    )


def test_second_turn_follows_the_own_answer(tmp_path):
    rows = rows_of(run(make_spec(tmp_path, dataset=two_turns())).path)
    for row in rows:
        first, second = row.turns
        messages = [("user", "tell me"), ("assistant", first.text), ("user", "more")]
        assert second.prompt_ids == tuple(ToyCodec().encode(messages))


def test_second_turn_follows_the_reference(tmp_path):
    spec = make_spec(tmp_path, dataset=two_turns("a long story"), history="reference")
    messages = [("user", "tell me"), ("assistant", "a long story"), ("user", "more")]
    for row in rows_of(run(spec).path):
        assert row.turns[1].prompt_ids == tuple(ToyCodec().encode(messages))


def test_a_missing_reference_is_an_error(tmp_path):
    spec = make_spec(tmp_path, dataset=two_turns(""), history="reference")
    assert "needs a reference answer to turn 1 of prompt 'x'" in run(spec).failure


def test_sampling_is_a_function_of_the_seed(tmp_path):
    law = SamplingLaw(temperature=1.0)

    def outputs(folder, **changes):
        spec = make_spec(tmp_path / folder, law=law, repeats=2, **changes)
        return {row.key: row.turns[0].output_ids for row in rows_of(run(spec).path)}

    first = outputs("a")
    assert outputs("b") == first
    assert outputs("c", seed=1) != first
    assert first["p0", 0, "vanilla"] != first["p0", 1, "vanilla"]
    # A prompt's output does not depend on which prompts came before it.
    reversed_prompts = make_dataset(make_dataset().prompts[::-1])
    assert outputs("d", dataset=reversed_prompts) == first


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("repeats", 0, "repeats must be ≥ 1, got 0"),
        ("state", "cold", "state must be reset or carry or warm, got 'cold'"),
        ("state", "warm", "state=warm needs prompts to warm up with, got none"),
        ("history", "none", "history must be own or reference, got 'none'"),
    ],
)
def test_bad_fields_are_refused(tmp_path, field, value, message):
    with pytest.raises(ValueError, match=message):
        make_spec(tmp_path, **{field: value})


@pytest.mark.parametrize("is_terminal", [True, False])
def test_results_fit_into_a_hundred_columns(tmp_path, capsys, is_terminal):
    result = run(make_spec(tmp_path, codec=NoWords(), progress=not is_terminal))
    if is_terminal:
        console = Console(width=100, force_terminal=True)
        print_results(result.summary, console)
    else:
        print_results(result.summary)
    out, err = capsys.readouterr()
    for word in ("vanilla", "pld", "tau", "speedup", "same ids", "5/5", "even", "forward"):
        assert word in out
    if not is_terminal:
        assert "\x1b" not in out + err
        assert max(map(len, out.splitlines())) <= 100
        assert "pld on toy: 6/6 prompts" in err
