"""Runs that are killed, interrupted, shut out or wrong: nothing is lost, doubled or mixed up."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.files import RunFolderError
from benchmarks.run_folder import RunFolderBusy
from benchmarks.runner import run
from support.processes import started
from support.runs import TEXTS, HookedTarget, Memory, NoWords, make_spec, rows_of, status_of

ROOT = Path(__file__).resolve().parent.parent.parent


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


def test_a_finished_run_is_not_measured_again(tmp_path):
    first = run(make_spec(tmp_path))
    before = {file: file.read_bytes() for file in first.path.iterdir()}
    target = HookedTarget(hook=lambda ids: pytest.fail("measured again"))
    again = run(make_spec(tmp_path, target=target, warmup=1))
    assert again.was_finished
    assert again.summary == first.summary
    assert {file: file.read_bytes() for file in first.path.iterdir()} == before


def test_killed_run_continues_and_keeps_others_out(tmp_path):
    spec = make_spec(tmp_path / "killed", warmup=0)
    log = spec.path / "requests.jsonl"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    # It waits for the end of its input in the prefill of the sixth row.
    command = [sys.executable, "-m", "support.runs", str(tmp_path / "killed"), "6"]
    with started(command, env=environment, cwd=tmp_path) as child:
        child.wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") == 5)
        with pytest.raises(RunFolderBusy, match=f"process {child.process.pid} on"):
            run(spec)
        child.kill()
    assert status_of(spec.path)["state"] == "running"
    before = rows_of(spec.path)
    assert len(before) == 5
    with log.open("ab") as stream:  # What a kill in the middle of a write leaves behind.
        stream.write(before[-1].to_line()[:77])
    run(spec)
    rows = rows_of(spec.path)
    assert rows[: len(before)] == before
    assert [row.session for row in rows] == [0] * len(before) + [1] * (12 - len(before))
    whole = rows_of(run(make_spec(tmp_path / "whole", warmup=0)).path)
    assert list(map(outcome, rows)) == list(map(outcome, whole))
    assert status_of(spec.path)["state"] == "done"


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
    target = HookedTarget(max_context=longest - 1 + 24)
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


def test_a_file_in_the_way_is_one_clear_error(tmp_path):
    (tmp_path / "toy").write_text("I am a file")
    with pytest.raises(RunFolderError, match=r"a file is in the way.*results_dir"):
        run(make_spec(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the super-user")
def test_a_folder_without_permission_is_one_clear_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunFolderError, match="Permission denied"):
        run(make_spec(tmp_path))
