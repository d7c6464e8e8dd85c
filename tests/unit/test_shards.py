"""One run cut into jobs: the same rows as in one piece, whoever ends last."""

from __future__ import annotations

import json

import pytest

from benchmarks.certificate import certify
from benchmarks.files import RunFolderError
from benchmarks.results import read_run, read_runs
from benchmarks.runner import ASSEMBLY_S, run
from benchmarks.shards import Shard, whole_run
from methods.targets.toy import ToyTarget
from support.locks import hold_until_asked
from support.runs import Memory, make_spec, rows_of, status_of


def outcome(row):
    """All of a row but times and memory."""
    return row.key, row.category, row.order, [turn.output_ids for turn in row.turns]


def shard(text):
    return Shard.parse(text)


def test_shards_cover_all_prompts_once():
    for num_shards in (1, 2, 5, 7):
        parts = [Shard(index=i + 1, num_shards=num_shards).indices(13) for i in range(num_shards)]
        assert sorted(index for part in parts for index in part) == list(range(13))


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_the_last_shard_puts_the_run_together(tmp_path, order):
    whole = run(make_spec(tmp_path / "whole", repeats=2, num_traced_prompts=2))
    for index in order:
        part = make_spec(
            tmp_path / "cut", repeats=2, num_traced_prompts=2, shard=shard(f"{index}/3")
        )
        result = run(part)
        is_last = index == order[-1]
        assert (result.path == part.path) is is_last
        assert bool(result.shards_left) is not is_last
    assert part.run_id == whole.summary["run"]["run_id"]
    rows = rows_of(part.path)
    assert list(map(outcome, rows)) == list(map(outcome, rows_of(whole.path)))
    assert {row.session for row in rows} == {0, 1, 2}
    assert result.summary["certificate"]["badge"] == "exact 6/6"
    assert result.summary["metrics"]["tau"] == whole.summary["metrics"]["tau"]
    assert len(read_run(part.path).env["sessions"]) == 3
    again = run(make_spec(tmp_path / "cut", repeats=2, num_traced_prompts=2, shard=shard("2/3")))
    assert again.was_finished


def test_shards_that_end_together_wait_for_the_one_that_assembles(tmp_path, monkeypatch):
    parts = [make_spec(tmp_path, shard=shard(f"{index}/2")) for index in (1, 2)]
    run(parts[0])
    patiences = hold_until_asked(parts[1].path, monkeypatch)
    assert run(parts[1]).path == parts[1].path
    assert patiences == [ASSEMBLY_S]


def test_a_sweep_over_shards_shows_the_whole(tmp_path):
    first = run(make_spec(tmp_path, shard=shard("1/2"))).path
    assert whole_run(first) is None
    whole = run(make_spec(tmp_path, shard=shard("2/2"))).path
    assert whole_run(first) == whole_run(whole) == whole


def test_an_unfinished_run_of_shards_is_no_result(tmp_path):
    spec = make_spec(tmp_path, shard=shard("1/2"))
    run(spec)
    runs, (unusable,) = read_runs([tmp_path])
    assert runs == []
    assert str(unusable) == f"{spec.path}: not finished: some of its shards are not done"


def test_shards_of_different_machines_are_not_pooled(tmp_path):
    first = make_spec(tmp_path, shard=shard("1/2"))
    env = run(first).path / "env.json"
    known = json.loads(env.read_text())
    known["sessions"][0]["device_name"] = "another chip"
    env.write_text(json.dumps(known))
    with pytest.raises(RunFolderError, match=r"not pooled.*\n  another chip: .*1-of-2\n"):
        run(make_spec(tmp_path, shard=shard("2/2")))
    status = status_of(first.path)
    assert status["state"] == "failed"
    assert "another chip" in status["reason"]


def test_hosts_of_one_kind_are_pooled(tmp_path):
    env = run(make_spec(tmp_path, shard=shard("1/2"))).path / "env.json"
    known = json.loads(env.read_text())
    known["sessions"][0]["host"] = "another host"
    env.write_text(json.dumps(known))
    result = run(make_spec(tmp_path, shard=shard("2/2")))
    assert result.summary["is_one_machine"]
    assert result.summary["num_measured"] == 6


def test_a_shard_alone_is_not_certified(tmp_path):
    spec = make_spec(tmp_path, shard=shard("1/2"))
    path = run(spec).path
    certificate = certify(rows_of(path), spec.facts, None)
    assert (certificate.status, certificate.num_prompts) == ("incomplete", 3)


def test_state_is_not_carried_between_jobs(tmp_path):
    with pytest.raises(ValueError, match=r"shard=1/2 needs state=reset: .*\(state=carry\)"):
        make_spec(tmp_path, retriever=Memory(), state="carry", shard=shard("1/2"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0/2", "shard must be i/n with 1 ≤ i ≤ n, got 0/2"),
        ("3/2", "shard must be i/n with 1 ≤ i ≤ n, got 3/2"),
        ("half", "shard must be i/n, e.g. 1/8, got 'half'"),
    ],
)
def test_wrong_shards_are_told(text, message):
    with pytest.raises(ValueError, match=message):
        Shard.parse(text)


def test_more_shards_than_prompts(tmp_path):
    """Some have nothing to do; the run is complete all the same."""
    for index in range(1, 9):
        result = run(make_spec(tmp_path, target=ToyTarget(), shard=shard(f"{index}/8")))
    assert result.summary["num_measured"] == 6
