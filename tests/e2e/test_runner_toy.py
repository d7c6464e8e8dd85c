"""Whole runs on the toy target: what is written, and that nothing is lost, doubled or mixed up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from support.runs import TEXTS, HookedTarget, Memory, make_dataset, make_method, make_spec

from benchmarks.clock import CLOCK_PHASES
from benchmarks.datasets.base import Prompt
from benchmarks.files import RunFolderError
from benchmarks.row_log import read_requests
from benchmarks.run_folder import RunFolderBusy
from benchmarks.runner import WARMUP_PROMPTS, run, summarize_folder
from benchmarks.table import print_results
from methods.sampling import SamplingLaw
from methods.targets.toy import ToyCodec

ROOT = Path(__file__).resolve().parent.parent.parent


def rows_of(path):
    return read_requests(path / "requests.jsonl")


def status_of(path):
    return json.loads((path / "status.json").read_text())


def outcome(request):
    """What must be the same in every run: all but times, memory and session."""
    steps = [
        turn.steps and (turn.steps.num_draft_nodes, turn.steps.num_output, turn.steps.reasons)
        for turn in request.turns
    ]
    return request.key, request.order, [turn.output_ids for turn in request.turns], steps


def interrupt_at(num_prefills):
    """A hook that is a Ctrl-C during the given prefill."""
    seen = []

    def hook(ids):
        seen.append(ids)
        if len(seen) == num_prefills:
            raise KeyboardInterrupt

    return hook


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


def test_a_finished_run_is_not_measured_again(tmp_path):
    first = run(make_spec(tmp_path))
    before = {file: file.read_bytes() for file in first.path.iterdir()}
    target = HookedTarget(hook=lambda ids: pytest.fail("measured again"))
    again = run(make_spec(tmp_path, target=target, warmup=1))
    assert again.was_finished
    assert again.summary == first.summary
    assert {file: file.read_bytes() for file in first.path.iterdir()} == before


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


def test_killed_run_continues_and_keeps_others_out(tmp_path):
    spec = make_spec(tmp_path / "killed")
    log = spec.path / "requests.jsonl"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    process = subprocess.Popen(
        [sys.executable, "-m", "support.runs", str(tmp_path / "killed"), "0.02"],
        env=environment,
        cwd=tmp_path,
    )
    try:
        wait_for_rows(log, 3, process)
        with pytest.raises(RunFolderBusy, match=f"process {process.pid} on"):
            run(spec)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert status_of(spec.path)["state"] == "running"
    before = rows_of(spec.path)
    assert 3 <= len(before) < 12
    with log.open("ab") as stream:  # What a kill in the middle of a write leaves behind.
        stream.write(before[-1].to_line()[:77])
    run(spec)
    rows = rows_of(spec.path)
    assert rows[: len(before)] == before
    assert [row.session for row in rows] == [0] * len(before) + [1] * (12 - len(before))
    whole = rows_of(run(make_spec(tmp_path / "whole")).path)
    assert list(map(outcome, rows)) == list(map(outcome, whole))
    assert status_of(spec.path)["state"] == "done"


def wait_for_rows(log, num_rows, process):
    deadline = time.monotonic() + 60
    while not log.exists() or log.read_bytes().count(b"\n") < num_rows:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "the run wrote no rows"
        time.sleep(0.01)


def test_interrupted_run_says_so_and_continues(tmp_path):
    target = HookedTarget(hook=interrupt_at(6))
    with pytest.raises(KeyboardInterrupt):
        run(make_spec(tmp_path, target=target, warmup=0))
    path = make_spec(tmp_path, warmup=0).path
    status = status_of(path)
    assert (status["state"], status["reason"]) == ("interrupted", "KeyboardInterrupt")
    assert status["num_rows"] == 5
    result = run(make_spec(tmp_path, warmup=0))
    assert len(rows_of(path)) == 12
    assert status_of(path)["state"] == "done"
    assert result.summary["num_measured"] == 6
    assert result.summary["is_one_machine"]


@pytest.mark.parametrize("num_prefills", [2, 7, 10])
def test_carried_state_survives_an_interruption(tmp_path, num_prefills):
    spec = {"state": "carry", "warmup": 0, "repeats": 2}
    target = HookedTarget(hook=interrupt_at(num_prefills))
    with pytest.raises(KeyboardInterrupt):
        run(make_spec(tmp_path / "a", retriever=Memory(), target=target, **spec))
    rows = rows_of(run(make_spec(tmp_path / "a", retriever=Memory(), **spec)).path)
    whole = rows_of(run(make_spec(tmp_path / "b", retriever=Memory(), **spec)).path)
    assert list(map(outcome, rows)) == list(map(outcome, whole))


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


class NoWords(ToyCodec):
    """Cannot find a token in the second prompt."""

    def encode(self, messages):
        return [] if messages[-1][1] == TEXTS[1] else super().encode(messages)


def test_a_failed_prompt_is_recorded_and_the_run_goes_on(tmp_path):
    result = run(make_spec(tmp_path, codec=NoWords()))
    failed = [row for row in rows_of(result.path) if row.error]
    assert [row.key for row in failed] == [("p1", 0, "method"), ("p1", 0, "vanilla")]
    assert failed[0].error.type == "ValueError"
    assert "prompt is empty" in failed[0].error.message
    assert failed[0].turns == ()
    assert result.summary["num_failed"] == 1
    assert result.summary["num_measured"] == 5
    assert (status_of(result.path)["state"], result.failure) == ("done", None)


def test_over_long_prompts_fail_alone(tmp_path):
    longest = max(len(text.split()) for text in TEXTS)
    target = HookedTarget(max_context=longest - 1 + 24 + 6)
    result = run(make_spec(tmp_path, target=target))
    assert result.summary["num_failed"] >= 1
    assert {failure["type"] for failure in result.summary["failures"]} == {"ContextOverflow"}
    assert result.summary["num_measured"] + result.summary["num_failed"] == 6


def test_a_run_whose_prompts_all_fail_has_failed_and_is_tried_again(tmp_path):
    def refuse(ids):
        raise RuntimeError("no memory left")

    result = run(make_spec(tmp_path, target=HookedTarget(hook=refuse)))
    assert "all prompts failed" in result.failure
    assert "no memory left" in status_of(result.path)["reason"]
    assert status_of(result.path)["state"] == "failed"
    assert run(make_spec(tmp_path)).summary["num_measured"] == 6


def test_on_error_stop_raises_and_a_later_run_continues(tmp_path):
    with pytest.raises(ValueError, match="prompt is empty"):
        run(make_spec(tmp_path, codec=NoWords(), on_error="stop", warmup=0))
    path = make_spec(tmp_path, warmup=0).path
    assert status_of(path)["state"] == "failed"
    assert len(rows_of(path)) == 2
    assert run(make_spec(tmp_path, warmup=0)).summary["num_measured"] == 6


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


def test_a_file_in_the_way_is_one_clear_error(tmp_path):
    (tmp_path / "toy").write_text("I am a file")
    with pytest.raises(RunFolderError, match=r"a file is in the way.*results_dir"):
        run(make_spec(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the super-user")
def test_a_folder_without_permission_is_one_clear_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunFolderError, match="Permission denied"):
        run(make_spec(tmp_path))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("repeats", 0, "repeats must be ≥ 1, got 0"),
        ("state", "warm", "state must be reset or carry, got 'warm'"),
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
