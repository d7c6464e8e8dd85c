"""Run folders as they lie about: whole ones are read, all others are named with their reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.files import RunFolderError, file_hash
from benchmarks.results import read_run, read_runs
from support.report_runs import answers, write_run


@pytest.fixture
def folder(tmp_path):
    write_run(tmp_path / "runs", "pld", answers())
    return tmp_path / "runs" / "pld"


def change(path: Path, **fields) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def drop(name):
    return lambda folder: (folder / name).unlink()


def end_differently(**status):
    return lambda folder: change(folder / "status.json", **status)


def mix_rows(folder):
    rows = (folder / "requests.jsonl").read_bytes()
    (folder / "requests.jsonl").write_bytes(rows * 2)


def mix_summaries(folder):
    env = json.loads((folder / "env.json").read_text())
    change(folder / "env.json", run={**env["run"], "run_id": "other"})


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (drop("status.json"), "half-written: it has no status.json that says done"),
        (drop("summary.json"), "half-written: it is marked as done but has no summary.json"),
        (drop("env.json"), "half-written: it is marked as done but has no env.json"),
        (end_differently(state="running"), "not finished: still running, or killed"),
        (end_differently(state="interrupted", reason="SIGTERM"), r"interrupted \(SIGTERM\)"),
        (end_differently(state="failed", reason="no memory"), r"the run failed \(no memory\)"),
        (
            lambda folder: change(folder / "summary.json", schema_version=1),
            "another version: summary.json has schema_version 1, this code reads 2",
        ),
        (
            lambda folder: change(folder / "env.json", schema_version=99),
            "another version: env.json has schema_version 99",
        ),
        (mix_summaries, "files of several runs are mixed: other and pld-id"),
        (mix_rows, "requests.jsonl has 24 rows, but the run ended with 12"),
        (
            lambda folder: (folder / "summary.json").write_text("{"),
            r"summary.json: expected a JSON object",
        ),
        (
            lambda folder: (folder / "config.yaml").write_text("a: [1"),
            "config.yaml is damaged: ",
        ),
        (
            lambda folder: change(folder / "summary.json", run=None),
            "summary.json lacks the facts of its run",
        ),
    ],
)
def test_what_is_not_whole_is_named_with_its_reason(folder, damage, reason):
    read_run(folder)
    damage(folder)
    runs, (unusable,) = read_runs([folder.parent])
    assert runs == []
    assert unusable.path == folder
    with pytest.raises(RunFolderError, match=reason):
        read_run(folder)


def test_each_run_is_read_once_in_the_order_of_paths(folder):
    write_run(folder.parent, "aasd", answers())
    shutil.copytree(folder, folder.parent.parent / "elsewhere" / "copy")
    runs, unusable = read_runs([folder, folder.parent, folder.parent.parent])
    assert [run.path.name for run in runs] == ["pld", "aasd", "copy"]
    assert unusable == []


def test_rows_may_be_missing(folder):
    (folder / "requests.jsonl").unlink()
    run = read_run(folder)
    assert not run.has_rows
    with pytest.raises(RunFolderError, match="its rows were not kept"):
        _ = run.requests


@pytest.mark.parametrize(
    ("name", "reason"), [("", "holds no finished run"), ("gone", "does not exist")]
)
def test_no_run_at_all_is_an_error(tmp_path, name, reason):
    with pytest.raises(RunFolderError, match=reason):
        read_runs([tmp_path / name])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            lambda folder: change(folder / "summary.json", metrics="hello"),
            "holds something that is no metric",
        ),
        (
            lambda folder: change(folder / "summary.json", metrics={"tau": {"value": "2.0"}}),
            "holds something that is no metric",
        ),
        (
            lambda folder: (folder / "summary.json").write_bytes(b'{"a": "\xff"}'),
            "expected utf-8 text",
        ),
    ],
)
def test_what_was_edited_by_hand_is_named(folder, damage, reason):
    damage(folder)
    with pytest.raises(RunFolderError, match=reason):
        read_run(folder)


def test_files_must_be_those_that_the_run_wrote(folder):
    hashes = {name: file_hash(folder / name) for name in ("requests.jsonl", "summary.json")}
    change(folder / "status.json", hashes=hashes)
    read_run(folder)
    summary = (folder / "summary.json").read_text()
    change(folder / "summary.json", num_failed=0, note="better")
    with pytest.raises(RunFolderError, match=r"summary\.json is not the one that the run wrote"):
        read_run(folder)
    (folder / "summary.json").write_text(summary)
    rows = (folder / "requests.jsonl").read_bytes()
    (folder / "requests.jsonl").write_bytes(rows.replace(b'"wall_ns":300', b'"wall_ns":100'))
    with pytest.raises(RunFolderError, match=r"requests\.jsonl is not the one"):
        read_run(folder)


def test_rows_that_are_a_folder_are_named(folder):
    (folder / "requests.jsonl").unlink()
    (folder / "requests.jsonl").mkdir()
    with pytest.raises(RunFolderError, match="Is a directory"):
        read_run(folder)
