"""The folder of a run: one writer, an honest status, and an id that follows what matters."""

from __future__ import annotations

import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from filelock import FileLock

from benchmarks.files import RunFolderError, file_hash, read_json, write_json
from benchmarks.provenance import code_version, git_state, run_id
from benchmarks.run_files import LOCK, run_path
from benchmarks.run_folder import PATIENCE_S, RunFolder, RunFolderBusy
from support.locks import hold_until_asked


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


def test_a_file_may_have_several_writers(tmp_path):
    """Readers see one of the contents; no writer takes another one's unfinished file."""
    path = tmp_path / "status.json"
    contents = [{"state": str(number), "text": "x" * 10_000} for number in range(8)]
    with ThreadPoolExecutor(len(contents)) as pool:
        for _ in range(5):
            assert list(pool.map(lambda value: write_json(path, value), contents)) == [None] * 8
            assert read_json(path) in contents
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]


def test_written_files_are_open_to_whom_the_user_lets_in(tmp_path):
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "status.json", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "status.json").stat().st_mode) == 0o640


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


def test_metrics_of_a_finished_run_are_written_under_its_lock_and_only_if_they_differ(tmp_path):
    path = tmp_path / "run"
    with RunFolder(path) as folder:
        start(folder)
        folder.finish({"tau": 2.0})
    held = FileLock(path / LOCK, thread_local=False)
    with RunFolder(path, patience_s=0.0) as folder, held:
        assert folder.renew(lambda: {"tau": 2.0}) == {"tau": 2.0}
        with pytest.raises(RunFolderBusy, match="being written by another process"):
            folder.renew(lambda: {"tau": 3.0})
        assert read_json(path / "summary.json") == {"tau": 2.0}
    with RunFolder(path) as folder:
        assert folder.renew(lambda: {"tau": 3.0}) == {"tau": 3.0}
        held.acquire(timeout=0)  # It is free again inside the block.
        held.release()
    assert read_json(path / "summary.json") == {"tau": 3.0}
    hashes = read_json(path / "status.json")["hashes"]
    assert hashes["summary.json"] == file_hash(path / "summary.json")


def test_who_looks_for_a_moment_whether_a_folder_is_held_keeps_nobody_out(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    patiences = hold_until_asked(tmp_path / "run", monkeypatch)
    with RunFolder(tmp_path / "run") as folder:
        start(folder)
    assert patiences == [PATIENCE_S]
    assert PATIENCE_S > 0


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
