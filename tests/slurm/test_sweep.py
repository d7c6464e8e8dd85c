"""Sweeps over a real SLURM cluster: same numbers, nothing lost, nothing doubled, all reported."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.processes import started
from support.runs import rows_of, status_of

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).resolve().parent.parent.parent
SLURM = (
    "hydra/launcher=slurm",
    "hydra.launcher.cpus_per_task=1",
    "hydra.launcher.mem_gb=1",
    "hydra.launcher.timeout_min=30",
)
TOY = ("debug=toy", "num_threads=1", "warmup=0", "num_traced_prompts=0")
TIMED = {"tokens/s", "ratio", "bytes"}
TIMED_PREFIXES = ("overhead.", "phase_share.")


def start(cluster, folder, *words):
    """A sweep in a process of its own, for a `with` block; its results go to `folder/results`."""
    command = [sys.executable, ROOT / "run.py", "-m", *TOY, f"results_dir={folder}/results", *words]
    folder.mkdir(exist_ok=True)
    return started(command, cwd=folder, env=cluster.environment())


def sweep(cluster, folder, *words):
    """Exit code, stdout and stderr."""
    with start(cluster, folder, *words) as child:
        return child.finish()


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


def num_rows(folder):
    """Rows per run folder that has some."""
    logs = folder.glob("results/*/*/*/*/requests.jsonl")
    return {log.parent: log.read_bytes().count(b"\n") for log in logs}


@contextmanager
def held_runs(folder, child, num_runs):
    """The folders of a sweep's runs, each held at some row after the twentieth."""
    pids = {}

    def all_are_held():
        for path, num in num_rows(folder).items():
            if num > 20 and path not in pids:
                pids[path] = status_of(path)["pid"]
                os.kill(pids[path], signal.SIGSTOP)
        return len(pids) == num_runs

    try:
        child.wait_until(all_are_held)
        yield pids
    finally:
        for pid in pids.values():
            # Where SLURM has woken one to warn it or to end it, it has ended by now.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


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
    with start(cluster, tmp_path, *words) as child:
        # Held, so that neither has ended when one of them is cancelled.
        with held_runs(tmp_path, child, num_runs=2):
            jobs = cluster.command("squeue", "--noheader", "--array", "--format=%i").split()
            cluster.command("scancel", jobs[0])
        code, _, err = child.finish()
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
    # 85 to 115 seconds after the start here, when the job surely listens, and before its end.
    limit = ("hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=5")
    words = (*SLURM[:-1], *limit, "method=pld", "seed=0", "repeats=30", "max_new_tokens=200")
    with start(cluster, tmp_path, *words) as child:
        # The run is held until it is warned of its limit, so that it is never too fast.
        with held_runs(tmp_path, child, num_runs=1) as pids:
            ((path, pid),) = pids.items()
            held = num_rows(tmp_path)[path]
            child.wait_until(lambda: status_of(path)["state"] != "running" or has_been_warned(pid))
        code, _, err = child.finish()
    assert code == 0, err
    rows = rows_of(path)
    assert status_of(path)["state"] == "done"
    sessions = Counter(row.session for row in rows)
    # Two on most machines; a slow one reaches the limit more than once.
    assert len(sessions) >= 2
    assert held <= len(rows) - sessions[max(sessions)]
    assert [row.session for row in rows] == sorted(row.session for row in rows)
    assert len({row.key for row in rows}) == len(rows) == 6 * 30 * 2


def has_been_warned(pid):
    """Whether the signal that announces the time limit waits for a process that is held."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    (pending,) = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(pending, 16) >> (signal.SIGUSR2 - 1) & 1)
