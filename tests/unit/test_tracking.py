"""Runs in wandb: nothing is lost offline, nothing is asked, and no failure reaches the run."""

from __future__ import annotations

import itertools
import json
import logging
import os
import pty
import select
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import wandb
from matplotlib.figure import Figure
from wandb.proto import wandb_internal_pb2

from benchmarks import tracking
from benchmarks.files import RunFolderError, read_json, write_json
from benchmarks.records import Request, RequestError, Turn
from benchmarks.steps import Steps
from benchmarks.tracking import open_tracker
from benchmarks.tracking_values import TABLE_COLUMNS, flatten_summary
from support.processes import PATIENCE_S

pytestmark = pytest.mark.slow  # `make check` is for while one writes.

TIMES = ("init_timeout", "finish_timeout")
YEARS = itertools.count(2000)
ROOT = Path(__file__).resolve().parents[2]
FACTS = {
    "run_id": "abc123", "model": "toy", "dataset": "quickstart", "method": "pld",
    "is_lossless": True,
}  # fmt: skip
CONFIG = {"seed": 7, "method": {"name": "pld"}}
SUMMARY = {
    "schema_version": 2,
    "primary_speedup": "speedup",
    "is_one_machine": True,
    "failures": [],
    "metrics": {
        "tau": {"value": 2.5, "interval": [2.0, 3.0]},
        "phase_share.build": {"value": 0.25, "interval": None},
        "strict_tau": {"value": None, "interval": None},
    },
    "categories": {"qa": {"tau": {"value": 4.0, "interval": [3.5, 4.5]}}},
}
FLAT = {
    "schema_version": 2,
    "primary_speedup": "speedup",
    "is_one_machine": True,
    "tau": 2.5,
    "tau.low": 2.0,
    "tau.high": 3.0,
    "phase_share/build": 0.25,
    "categories/qa/tau": 4.0,
    "categories/qa/tau.low": 3.5,
    "categories/qa/tau.high": 4.5,
}


def run_folder(path):
    """Every one with a time, and so an id, of its own: wandb keeps that of a broken run."""
    path.mkdir(exist_ok=True)
    time = f"{next(YEARS)}-01-02T03:04:05+00:00"
    write_json(path / "env.json", {"sessions": [{"time": time}]})
    return path


@pytest.fixture
def directory(tmp_path):
    return run_folder(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def wandb_elsewhere(tmp_path_factory):
    """No key, no network, no file of the user's, no service left behind, and time to start one."""
    home = str(tmp_path_factory.mktemp("home"))
    nowhere = "http://127.0.0.1:9"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "XDG_CACHE_HOME", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
            patch.setenv(name, home)
        patch.setenv("NETRC", f"{home}/netrc")
        patch.setenv("HTTPS_PROXY", nowhere)
        patch.setenv("WANDB_BASE_URL", nowhere)
        patch.delenv("WANDB_API_KEY", raising=False)
        for name in TIMES:
            patch.setitem(tracking._SETTINGS, name, PATIENCE_S)
        yield
        wandb.teardown()


def steps(*num_output):
    zeros = (0,) * len(num_output)
    empty = ((),) * len(num_output)
    counts = (
        "num_draft_nodes", "num_accepted", "num_strict", "match_len", "draft_depth",
        "candidate_tokens", "candidate_nodes", "step_ns",
    )  # fmt: skip
    words = ("reasons", "sources", "regrets", "regret_bounds")
    return Steps(
        num_output=num_output, **dict.fromkeys(counts, zeros), **dict.fromkeys(words, empty)
    )


def request(prompt_id, arm, *, num_output=(), wall_ns=0, error=None):
    turn = Turn(
        num_prompt_tokens=1, prompt_sha="", prompt_ids=None, finish_reason="length", text="",
        output_ids=(1,) * (1 + sum(num_output)), wall_ns=wall_ns, phase_ns={},
        steps=steps(*num_output),
    )  # fmt: skip
    return Request(
        prompt_id=prompt_id, category="qa", arm=arm, repeat=0, order=0,
        turns=() if error else (turn,), error=error,
    )  # fmt: skip


def prompts():
    """Tau 4/2 and 6/2, together 10/4; speedups 600/200 and 400/300, together 1000/500."""
    return [
        [
            request("a", "vanilla", num_output=(1, 1, 1, 1), wall_ns=600),
            request("a", "method", num_output=(3, 1), wall_ns=200),
        ],
        [
            request("b", "vanilla", num_output=(1,) * 6, wall_ns=400),
            request("b", "method", num_output=(3, 3), wall_ns=300),
        ],
        [
            request("c", "vanilla", num_output=(1,), wall_ns=10**9),
            request("c", "method", error=RequestError(type="ValueError", message="oh")),
        ],
    ]


def track(directory, mode="offline", facts=FACTS, **options):
    with open_tracker(
        mode, project="project", config=CONFIG, facts=facts, directory=directory
    ) as tracker:
        for requests in prompts():
            tracker.log_prompt(requests)
        tracker.log_summary(SUMMARY, **options)
        return tracker.is_active


def read_records(directory):
    """The records of an offline run: a log of 32 KiB blocks, as of LevelDB, behind 7 bytes."""
    wandb.teardown()  # Its service writes the last records after `finish`.
    (path,) = directory.glob("wandb/offline-run-*/run-*.wandb")
    data, place, value, records = path.read_bytes(), 7, b"", []
    while place < len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        value += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # A whole record, or its last part.
            records.append(wandb_internal_pb2.Record.FromString(value))
            value = b""
    return records


def items(parts):
    return {
        "/".join(part.nested_key) or part.key: json.loads(part.value_json)
        for part in parts
        if part.value_json
    }


def read_run(directory):
    records = read_records(directory)
    (run,) = [record.run for record in records if record.HasField("run")]
    history = [items(record.history.item) for record in records if record.HasField("history")]
    summary = {}
    for record in records:
        summary |= items(record.summary.update)
    return run, history, summary


def warnings_of(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_summary_becomes_one_level():
    assert flatten_summary(SUMMARY) == FLAT


def test_an_offline_run_holds_everything_in_the_run_folder(directory, capfd, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    streams = sys.stdout, sys.stderr
    figure = Figure()
    figure.subplots().plot([1, 2])
    assert track(directory, figures={"speed": figure})
    assert (sys.stdout, sys.stderr) == streams
    assert capfd.readouterr() == ("", "")
    assert list(elsewhere.iterdir()) == []
    assert "WANDB_SILENT" not in os.environ
    assert warnings_of(caplog) == []

    run, history, summary = read_run(directory)
    year = read_json(directory / "env.json")["sessions"][0]["time"][:4]
    assert (run.run_id, run.project) == (f"abc123-{year}0102030405", "project")
    assert (run.display_name, run.run_group) == ("pld on quickstart", "toy")
    config = items(run.config.update)
    assert (config["seed"], config["method"], config["run"]) == (7, {"name": "pld"}, FACTS)
    running = [(h["_step"], h.get("running/tau"), h.get("running/speedup")) for h in history]
    assert running == [(0, 2.0, 3.0), (1, 2.5, 2.0), (2, 2.5, 2.0), (3, None, None)]
    assert {name: summary[name] for name in FLAT} == FLAT

    (folder,) = directory.glob("wandb/offline-run-*")
    assert f"wandb sync {folder}" in caplog.text
    (table,) = folder.glob("files/media/table/*.json")
    content = json.loads(table.read_text())
    assert content["columns"] == list(TABLE_COLUMNS)
    assert content["data"] == [
        ["a", "qa", 0, 5, 5, 2.0, 3.0, None],
        ["b", "qa", 0, 7, 7, 3.0, 4 / 3, None],
        ["c", "qa", 0, None, 2, None, None, "ValueError: oh"],
    ]
    assert len(list(folder.glob("files/media/images/plots/speed_*.png"))) == 1
    (artifact,) = [r.artifact for r in read_records(directory) if r.HasField("artifact")]
    for entry in artifact.manifest.contents:
        assert Path(entry.local_path).is_relative_to(directory)
        assert Path(entry.local_path).exists()


@pytest.mark.parametrize("is_lossless", [False, True])
def test_the_speedup_of_answers_of_other_lengths_is_per_token(directory, is_lossless):
    """They differ in length if a method is lossy, and in sampling whatever it is."""
    rows = [
        request("a", "vanilla", num_output=(1, 1, 1), wall_ns=300),
        request("a", "method", num_output=(1,), wall_ns=100),
    ]
    facts = {**FACTS, "is_lossless": is_lossless}
    with open_tracker(
        "offline", project="p", config={}, facts=facts, directory=directory
    ) as tracker:
        tracker.log_prompt(rows)
    _, (entry,), _ = read_run(directory)
    assert entry["running/speedup"] == pytest.approx(3 * 2 / 4)


def test_what_an_earlier_session_sent_is_not_sent_again(directory, monkeypatch):
    class Resumed:
        def __init__(self):
            self.step, self.dir, self.summary, self.sent = 2, "x/files", {}, []

        def log(self, values, step):
            self.sent.append((step, sorted(values)))

        def finish(self, exit_code):
            self.sent.append(exit_code)

    run = Resumed()
    monkeypatch.setattr(wandb, "init", lambda **_: run)
    assert track(directory)
    assert run.sent == [(2, ["running/speedup", "running/tau"]), (3, ["prompts"]), 0]


@pytest.mark.parametrize("is_offline_broken", [False, True])
def test_online_that_cannot_start_becomes_offline(
    directory, monkeypatch, caplog, is_offline_broken
):
    real = wandb.init

    def broken(mode, **options):
        if mode == "online" or is_offline_broken:
            raise OSError("no luck\nat all")
        return real(mode=mode, **options)

    monkeypatch.setattr(wandb, "init", broken)
    assert track(directory, "online") is not is_offline_broken
    first, *rest = warnings_of(caplog)
    assert first == ("wandb: cannot start online (OSError: no luck); this run is tracked offline")
    assert (
        rest
        == ["wandb: cannot start offline (OSError: no luck); the run goes on untracked"]
        * is_offline_broken
    )


@pytest.mark.parametrize(
    ("method", "what"),
    [("log", "log a prompt"), ("finish", "finish")],
)
def test_wandb_that_fails_is_left_alone(directory, monkeypatch, caplog, method, what):
    def broken(*_, **__):
        raise RuntimeError("service gone")

    with monkeypatch.context() as patch:
        patch.setattr(wandb.Run, method, broken)
        track(directory)
    message = f"wandb: could not {what} (RuntimeError: service gone); the run goes on untracked"
    assert warnings_of(caplog) == [message]

    later = run_folder(directory / "later")
    assert track(later)
    assert len(read_run(later)[1]) == 4


def test_the_error_of_a_run_is_not_wandbs(directory, caplog):
    def fail():
        with open_tracker("offline", project="p", config={}, facts=FACTS, directory=directory):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert warnings_of(caplog) == []
    (code,) = [r.exit.exit_code for r in read_records(directory) if r.HasField("exit")]
    assert code == 1


PROGRAM = f"""
import logging, sys
from pathlib import Path
from benchmarks import tracking
tracking._SETTINGS.update(dict.fromkeys({TIMES}, {PATIENCE_S}))
logging.basicConfig(level=logging.WARNING, format="%(message)s")
facts = dict(run_id="1", model="m", dataset="d", method="x", is_lossless=True)
mode, folder = sys.argv[1:]
with tracking.open_tracker(
    mode, project="p", config=dict(), facts=facts, directory=Path(folder)
) as tracker:
    tracker.log_summary(dict(metrics=dict(), categories=dict()))
    print(tracker.is_active, "wandb" in sys.modules)
"""


def test_without_a_key_a_terminal_is_not_asked_for_one(directory):
    leader, terminal = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, "online", str(directory)]
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    done = subprocess.run(command, cwd=ROOT, **streams, timeout=PATIENCE_S, check=False)
    os.close(terminal)
    text = read_all(leader)
    os.close(leader)
    assert done.returncode == 0
    assert text.split("\r\n") == [
        "wandb: cannot start online (UsageError: No API key configured. Use `wandb login` to log "
        "in.); this run is tracked offline",
        "True True",
        "",
    ]
    assert len(list(directory.glob("wandb/offline-run-*"))) == 1


def read_all(leader):
    """What was written to a terminal, which nobody writes to any more."""
    text = b""
    # It passes through the kernel in parts; the end of them is an error, or silence.
    with suppress(OSError):
        while select.select([leader], [], [], 1.0)[0] and (part := os.read(leader, 4096)):
            text += part
    return text.decode()


def test_off_does_not_import_wandb(tmp_path):
    command = [sys.executable, "-c", PROGRAM, "off", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_mode_or_folder_is_refused(tmp_path):
    def start(mode):
        with open_tracker(mode, project="p", config={}, facts=FACTS, directory=tmp_path):
            pass

    with pytest.raises(ValueError, match=r"wandb must be online, offline or off, got False"):
        start(False)
    with pytest.raises(RunFolderError, match=r"no run folder: it has no env\.json"):
        start("offline")
