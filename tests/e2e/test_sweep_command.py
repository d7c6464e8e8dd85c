"""Sweeps from the command line: every cell is reported, and starts at one moment do not collide."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.results import read_runs
from support.processes import started
from support.runs import rows_of

ROOT = Path(__file__).resolve().parents[2]
TOY = ("debug=toy", "limit=2", "max_new_tokens=8", "warmup=0", "num_threads=1", "progress=false")


def start(folder, *words):
    """A run or a sweep in a process of its own, for a `with` block."""
    command = [sys.executable, str(ROOT / "run.py"), *TOY, f"results_dir={folder}/results", *words]
    return started(command, cwd=folder)


def finish(folder, *words):
    with start(folder, *words) as child:
        return child.finish()


def finish_together(folder, *commands):
    """Exit code, stdout and stderr of each, all started at one moment."""
    with ExitStack() as stack:
        children = [stack.enter_context(start(folder, *words)) for words in commands]
        return [child.finish() for child in children]


@pytest.mark.slow
def test_a_wrong_cell_stops_no_other_and_the_exit_code_says_so(tmp_path):
    code, out, err = finish(tmp_path, "-m", "method=pld", "retriever.max_ngram=0,2,3")
    assert code == 2
    assert err.count("max_ngram must be ≥ min_ngram (1), got 0") == 1
    runs, unusable = read_runs([tmp_path / "results"])
    assert (len(runs), unusable) == (2, [])
    status = out.strip().splitlines()[-1]
    assert status.startswith("python scripts/sweep_status.py outputs/multirun/")
    script = [sys.executable, str(ROOT / status.split()[1]), status.split()[2]]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "2 done" in done.stdout
    assert "1 failed" in done.stdout


def test_cells_are_found_by_their_number(tmp_path):
    code, _, err = finish(tmp_path, "-m", "hydra.sweep.subdir=mine", "method=pld,rest")
    assert code == 1
    assert err == "error: hydra.sweep.subdir is the number of a cell, by which it is found again\n"


@pytest.mark.slow
def test_twenty_starts_at_one_moment_leave_one_whole_run(tmp_path):
    """One measures; the others find it running, and say so, or find it done."""
    ends = finish_together(tmp_path, *[("method=pld", "repeats=20")] * 20)
    assert {code for code, _, _ in ends} <= {0, 2}, ends
    assert 0 in {code for code, _, _ in ends}
    refused = [err for code, _, err in ends if code == 2]
    assert all("is being written by" in err for err in refused)
    (run,), unusable = read_runs([tmp_path / "results"])
    assert unusable == []
    rows = rows_of(run.path)
    assert len(rows) == len({row.key for row in rows}) == 2 * 2 * 20


@pytest.mark.slow
def test_different_starts_at_one_moment_leave_a_run_each(tmp_path):
    ends = finish_together(tmp_path, ("method=pld", "seed=0"), ("method=pld", "seed=1"))
    assert {code for code, _, _ in ends} == {0}, ends
    runs, unusable = read_runs([tmp_path / "results"])
    assert (len(runs), unusable) == (2, [])
