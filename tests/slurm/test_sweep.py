"""Sweeps over a real SLURM cluster: same numbers, nothing lost, nothing doubled, all reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from support.runs import rows_of, status_of

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).resolve().parent.parent.parent
SLURM = (
    "hydra/launcher=slurm",
    "hydra.launcher.cpus_per_task=1",
    "hydra.launcher.mem_gb=1",
    "hydra.launcher.timeout_min=5",
)
TOY = ("debug=toy", "num_threads=1", "warmup=0", "num_traced_prompts=0")
TIMED = {"tokens/s", "ratio", "bytes"}
TIMED_PREFIXES = ("overhead.", "phase_share.")
PATIENCE_S = 150.0


def start(cluster, folder, *words):
    """A sweep in a process of its own; its results go to `folder/results`."""
    command = [sys.executable, ROOT / "run.py", "-m", *TOY, f"results_dir={folder}/results", *words]
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        command,
        cwd=folder,
        env=cluster.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """Exit code, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


def sweep(cluster, folder, *words):
    return finish(start(cluster, folder, *words))


def run_folders(folder):
    """The run folders by method and run id."""
    paths = sorted((folder / "results").glob("*/*/*/*"))
    return {(path.parent.name, path.name): path for path in paths}


def untimed(path):
    """Value and interval of every metric that is no time and made of no times."""
    metrics = json.loads((path / "summary.json").read_text())["metrics"]
    return {
        name: (metric["value"], metric["interval"])
        for name, metric in metrics.items()
        if metric["unit"] not in TIMED and not metric["definition"].startswith(TIMED_PREFIXES)
    }


def wait_for(condition, process):
    """Until it holds; fails when the sweep ends before."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def num_rows(folder):
    """Rows per run folder that has some."""
    logs = folder.glob("results/*/*/*/*/requests.jsonl")
    return {log.parent: log.read_bytes().count(b"\n") for log in logs}


def test_a_sweep_over_slurm_gives_the_local_numbers(cluster, tmp_path):
    cells = ("method=pld,pld_soft", "seed=0,1,2")
    code, out, err = sweep(cluster, tmp_path / "slurm", *SLURM, *cells)
    assert code == 0, err
    assert "sacct" not in out + err
    assert "on quickstart, 6 prompts x up to 32 tokens" in out
    local_code, _, _ = sweep(cluster, tmp_path / "local", *cells)
    assert local_code == 0
    ours, theirs = run_folders(tmp_path / "slurm"), run_folders(tmp_path / "local")
    assert len(ours) == 6
    assert ours.keys() == theirs.keys()
    for key, path in ours.items():
        assert {"tau", "output_tokens", "identical_outputs"} <= untimed(path).keys()
        assert untimed(path) == untimed(theirs[key]), key


def test_a_cancelled_job_is_reported_and_continued(cluster, tmp_path):
    words = (*SLURM, "method=pld", "seed=0,1", "repeats=150", "max_new_tokens=200")
    process = start(cluster, tmp_path, *words)
    wait_for(lambda: sum(num > 20 for num in num_rows(tmp_path).values()) == 2, process)
    jobs = cluster.command("squeue", "--noheader", "--array", "--format=%i").split()
    cluster.command("scancel", jobs[0])
    code, _, err = finish(process)
    assert code == 1
    assert f"job {jobs[0]} ended without a result" in err
    states = {path: status_of(path)["state"] for path in num_rows(tmp_path)}
    assert sorted(states.values()) == ["done", "running"]
    (cut,) = (path for path, state in states.items() if state == "running")
    before = rows_of(cut)
    code, _, err = sweep(cluster, tmp_path, *words)
    assert code == 0, err
    rows = rows_of(cut)
    assert rows[: len(before)] == before
    assert {row.session for row in rows[len(before) :]} == {1}
    for path in states:
        assert status_of(path)["state"] == "done"
        keys = Counter(row.key for row in rows_of(path))
        assert len(keys) == 6 * 150 * 2
        assert set(keys.values()) == {1}


def test_a_wrong_cell_is_reported_and_stops_no_other(cluster, tmp_path):
    code, _, err = sweep(cluster, tmp_path, *SLURM, "method=pld", "retriever.max_ngram=0,2,3")
    assert code == 2
    assert err.count("max_ngram must be ≥ min_ngram (1), got 0") == 1
    assert "retriever.max_ngram=0" in err
    paths = run_folders(tmp_path).values()
    assert [status_of(path)["state"] for path in paths] == ["done", "done"]


def test_a_job_at_its_time_limit_is_requeued_and_continues(cluster, tmp_path):
    # SLURM looks every half minute, and warns where the delay would have passed by the next look:
    # 25 to 55 seconds after the start here, when the job surely listens, and a look before its end.
    limit = ("hydra.launcher.timeout_min=1", "hydra.launcher.signal_delay_s=5")
    words = (*SLURM[:-1], *limit, "method=pld", "seed=0", "repeats=30", "max_new_tokens=200")
    process = start(cluster, tmp_path, *words)
    wait_for(lambda: sum(num_rows(tmp_path).values()) > 20, process)
    (path,) = num_rows(tmp_path)
    pid = status_of(path)["pid"]
    # The run is held until it is warned of its limit, so that it is never too fast.
    os.kill(pid, signal.SIGSTOP)
    held = num_rows(tmp_path)[path]
    wait_for(lambda: status_of(path)["state"] != "running" or has_been_warned(pid), process)
    # Where SLURM has woken the run to warn it, it has ended by now.
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    code, _, err = finish(process)
    assert code == 0, err
    rows = rows_of(path)
    assert status_of(path)["state"] == "done"
    sessions = Counter(row.session for row in rows)
    assert held <= sessions[0] < len(rows)
    assert sessions.keys() == {0, 1}
    assert [row.session for row in rows] == sorted(row.session for row in rows)
    assert len({row.key for row in rows}) == len(rows) == 6 * 30 * 2


def has_been_warned(pid):
    """Whether the signal that announces the time limit waits for a process that is held."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
    (pending,) = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(pending, 16) >> (signal.SIGUSR2 - 1) & 1)
