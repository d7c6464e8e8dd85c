"""The files of a run: rows that survive whatever ended the process, and where results come from."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from benchmarks.files import RunFolderError, read_json, write_json
from benchmarks.provenance import code_version, git_state, run_id
from benchmarks.records import Request, RequestError, Steps, Turn, hash_ids
from benchmarks.row_log import RowLog, read_requests
from benchmarks.run_folder import RunFolder, RunFolderBusy, run_path
from methods.decoding import StepRecord

STEPS = Steps.from_records(
    [
        StepRecord(
            num_draft_nodes=4, num_accepted=2, num_output=3, reasons=("pending", "em", "em"),
            sources=("", "a", "a"), match_len=2, draft_depth=3,
        ),
        StepRecord(
            num_draft_nodes=0, num_accepted=0, num_output=1, reasons=("pending",),
            sources=("",), match_len=0, draft_depth=0,
        ),
    ],
    [100, 50],
)  # fmt: skip


def make_request(prompt_id="p", text="héllo\u2028\n", **changes):
    turn = Turn(
        num_prompt_tokens=3,
        prompt_sha=hash_ids([1, 2, 3]),
        prompt_ids=(1, 2, 3),
        output_ids=(4, 5, 6, 7, 8),
        text=text,
        finish_reason="length",
        wall_ns=200,
        phase_ns={"prefill": 40, "forward": 160},
        steps=STEPS,
    )
    fields = {"category": "qa", "arm": "method", "repeat": 0, "order": 0, "turns": (turn,)}
    return Request(prompt_id=prompt_id, **(fields | changes))


def test_steps_are_columns():
    assert len(STEPS) == 2
    assert STEPS.num_output == (3, 1)
    assert STEPS.step_ns == (100, 50)
    with pytest.raises(ValueError, match=r"match_len must have one entry per step \(1\), got 0"):
        Steps(num_output=(1,), num_draft_nodes=(0,), num_accepted=(0,))


@pytest.mark.parametrize(
    "text", ["plain", "two\nlines\u2028", "日本語 🎲", "lone \ud800 surrogate"]
)
def test_a_row_is_one_line_and_comes_back(text):
    request = make_request(text=text)
    line = request.to_line()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert Request.from_line(line) == request


def test_an_error_row_comes_back_without_numbers():
    error = RequestError(type="ContextOverflow", message="too long")
    request = make_request(turns=(), error=error)
    assert Request.from_line(request.to_line()) == request
    with pytest.raises(ValueError, match="must hold either turns or an error"):
        make_request(error=error)
    with pytest.raises(ValueError, match="must hold either turns or an error"):
        make_request(turns=())


def test_words_are_stored_once():
    value = STEPS.to_json()["reasons"]
    assert value == {"values": [("pending", "em", "em"), ("pending",)], "codes": [0, 1]}


def test_steps_must_account_for_every_token():
    with pytest.raises(ValueError, match=r"num_output must sum to .* \(3\), got 4"):
        Turn(**(vars(make_request().turns[0]) | {"output_ids": (1, 2, 3, 4)}))


def write_rows(path, *names):
    log = RowLog(path)
    for name in names:
        log.append(make_request(name))
    log.close()


@pytest.mark.parametrize(
    "tail",
    [
        make_request("d").to_line()[:-1],  # All of a row but its line end.
        make_request("d").to_line()[:50],
        b"{",
        b"\0" * 100,  # A file system that lost power: the length is there, the content is not.
        b'{"prompt_id": "d\n',
    ],
)
def test_a_torn_end_is_cut_off(tmp_path, tail):
    path = tmp_path / "requests.jsonl"
    write_rows(path, "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert [request.prompt_id for request in read_requests(path)] == ["a", "b"]
    log = RowLog(path)
    assert path.read_bytes() == whole
    log.append(make_request("c"))
    log.close()
    assert [request.prompt_id for request in read_requests(path)] == ["a", "b", "c"]


@pytest.mark.parametrize("damage", [b"{", b'{"schema_version": 1}', b"[]", b"\xff"])
def test_damage_in_the_middle_is_an_error_with_its_place(tmp_path, damage):
    path = tmp_path / "requests.jsonl"
    write_rows(path, "a", "b")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage + b"\n" + lines[1])
    with pytest.raises(RunFolderError, match=r"requests\.jsonl:2: .* damaged line"):
        RowLog(path)


def test_another_schema_is_an_error_even_at_the_end(tmp_path):
    path = tmp_path / "requests.jsonl"
    row = json.loads(make_request().to_line()) | {"schema_version": 99}
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(RunFolderError, match="schema_version must be 1, got 99"):
        RowLog(path)


def test_no_key_comes_twice(tmp_path):
    path = tmp_path / "requests.jsonl"
    log = RowLog(path)
    log.append(make_request("a"))
    assert ("a", 0, "method") in log
    with pytest.raises(ValueError, match="is recorded already"):
        log.append(make_request("a"))
    log.append(make_request("a", repeat=1))
    log.append(make_request("a", arm="vanilla"))
    log.close()
    path.write_bytes(path.read_bytes() + make_request("a").to_line())
    with pytest.raises(RunFolderError, match=r":4: .* recorded twice"):
        read_requests(path)


def test_rows_may_be_taken_out(tmp_path):
    path = tmp_path / "requests.jsonl"
    write_rows(path, "a", "b", "c")
    log = RowLog(path, keep=lambda request: request.prompt_id != "b")
    log.append(make_request("b"))
    log.close()
    assert [request.prompt_id for request in read_requests(path)] == ["a", "c", "b"]


def test_a_full_disk_is_one_clear_error_and_leaves_a_file_that_can_be_continued(
    tmp_path, monkeypatch
):
    path = tmp_path / "requests.jsonl"
    write_rows(path, "a")
    log, write = RowLog(path), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:20]))
    with pytest.raises(RunFolderError, match="No space left on device"):
        log.append(make_request("b"))
    log.close()
    monkeypatch.undo()
    write_rows(path, "b")
    assert [request.prompt_id for request in read_requests(path)] == ["a", "b"]


def test_small_files_are_whole_or_absent(tmp_path):
    path = tmp_path / "status.json"
    assert read_json(path) is None
    write_json(path, {"state": "done"})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"state": float("nan")})
    assert read_json(path) == {"state": "done"}
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]
    path.write_text("[]")
    with pytest.raises(RunFolderError, match="expected a JSON object, found list"):
        read_json(path)


def start(folder):
    folder.start(config={"a": 1}, facts={}, environment={"time": "now"}, num_expected=1)


def test_a_folder_has_one_writer(tmp_path):
    with RunFolder(tmp_path / "run") as folder:
        start(folder)
        with (
            pytest.raises(RunFolderBusy, match=f"being written by process {os.getpid()} on"),
            RunFolder(tmp_path / "run"),
        ):
            pass
    with RunFolder(tmp_path / "run"):
        pass


def test_a_folder_ends_as_its_block_ends(tmp_path):
    def status():
        value = read_json(tmp_path / "run" / "status.json")
        return value["state"], value["reason"]

    def end_with(error):
        with RunFolder(tmp_path / "run") as folder:
            start(folder)
            assert status() == ("running", None)
            raise error

    with pytest.raises(ZeroDivisionError):
        end_with(ZeroDivisionError("oh"))
    assert status() == ("failed", "ZeroDivisionError: oh")
    with pytest.raises(SystemExit):
        end_with(SystemExit())
    assert status() == ("interrupted", "SystemExit")
    with RunFolder(tmp_path / "run") as folder:
        start(folder)
        folder.finish({"tau": 2.0})
    assert status() == ("done", None)
    assert len(read_json(tmp_path / "run" / "env.json")["sessions"]) == 3


def test_a_finished_folder_can_be_read_without_a_lock(tmp_path):
    with RunFolder(tmp_path / "run") as folder:
        start(folder)
        folder.finish({"tau": 2.0})
    (tmp_path / "run" / ".lock").unlink()
    with RunFolder(tmp_path / "run") as folder:
        assert folder.is_done
    assert not (tmp_path / "run" / ".lock").exists()


def test_names_are_made_fit_for_folders(tmp_path):
    path = run_path(tmp_path, model="org/model 1.0", dataset="../x", method="a+b", run_id="0" * 12)
    assert path.relative_to(tmp_path).parts == ("org--model-1.0", "x", "a+b", "0" * 12)


def make_id(config=None, **changes):
    fields = {"settings": {}, "dataset_hash": "d", "datastore_hashes": {}, "code": "c"}
    return run_id(config or {}, **(fields | changes))


def test_the_run_id_depends_on_what_can_change_results():
    base = {"seed": 0, "dataset": {"name": "jsonl", "path": "/here"}, "results_dir": "r"}
    assert len(make_id(base)) == 12
    for same in (
        {**base, "results_dir": "elsewhere"},
        {**base, "progress": False, "wandb": {"project": "x"}, "hydra": {"job": 1}},
        {**base, "dataset": {"path": "/there", "name": "jsonl"}},
        dict(reversed(base.items())),
    ):
        assert make_id(same) == make_id(base)
    others = [
        make_id({**base, "seed": 1}),
        make_id({**base, "dataset": {"name": "quickstart", "path": "/here"}}),
        make_id(base, dataset_hash="other"),
        make_id(base, datastore_hashes={"store": "1"}),
        make_id(base, code="other"),
        make_id(base, settings={"repeats": 2}),
    ]
    assert len({make_id(base), *others}) == 1 + len(others)


def test_the_code_version_follows_the_sources(tmp_path):
    def version():
        code_version.cache_clear()
        return code_version(tmp_path)

    try:
        (tmp_path / "methods").mkdir()
        (tmp_path / "methods" / "a.py").write_text("x = 1")
        first = version()
        (tmp_path / "methods" / "notes.txt").write_text("no code")
        (tmp_path / "other.py").write_text("not of a package")
        assert version() == first
        (tmp_path / "methods" / "a.py").write_text("x = 2")
        second = version()
        (tmp_path / "methods" / "a.py").rename(tmp_path / "methods" / "b.py")
        assert len({first, second, version()}) == 3
    finally:
        code_version.cache_clear()


def test_git_state_is_that_of_this_project_only(tmp_path):
    assert git_state(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "a.py").write_text("")
    subprocess.run([*git, "add", "a.py"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "a"], check=True)
    state = git_state(tmp_path.resolve())
    assert len(state["commit"]) == 40
    assert not state["is_dirty"]
    (tmp_path / "a.py").write_text("x")
    assert git_state(tmp_path.resolve())["is_dirty"]
    (tmp_path / "inner").mkdir()
    assert git_state(tmp_path.resolve() / "inner") is None
