"""One command runs an experiment that is a sweep, and prints its table beside published figures."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results import read_runs
from benchmarks.sweeps import read_sweep

ROOT = Path(__file__).resolve().parents[2]
TOY = (
    "debug=toy", "limit=6", "max_new_tokens=8", "warmup=0", "num_threads=1", "progress=false",
    "results_dir=results", "datastore.limit=6", "datastore.max_new_tokens=8",
)  # fmt: skip


def start(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A program of this project, in an empty folder."""
    words = [sys.executable, str(ROOT / command[0]), *command[1:]]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_an_experiment_is_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SD_PRIMITIVES_CACHE", str(tmp_path / "cache"))
    done = start(tmp_path, "run.py", "experiment=table3", *TOY)
    assert (done.returncode, done.stderr.count("error")) == (0, 0)
    runs, unusable = read_runs([tmp_path / "results"])
    assert (len(runs), unusable) == (4, [])
    head, _, table = done.stdout.partition("Table 3: ablation of SEN and SE")
    assert "certificate" in head
    for row in ("SENSE", "without SE", "without SEN", "without both"):
        assert f"\n{row:14}ours: toy, quickstart" in table
    assert table.count("published: Qwen3-8B") == 3

    folder = tmp_path / shlex.split(done.stdout.strip().splitlines()[-1])[-1]
    sweep = read_sweep(folder)
    assert [cell.state for cell in sweep.cells] == ["done"] * 4
    again = start(tmp_path, "scripts/paper_table.py", str(folder))
    assert again.stdout.strip() in done.stdout

    # The command of one cell is a single run.
    cell = start(tmp_path, "run.py", *shlex.split(sweep.cells[1].label))
    assert cell.returncode == 0
    assert "/toy/quickstart/sense+greedy/" in cell.stdout.splitlines()[-1]
    assert "published" not in cell.stdout
    assert len(list((tmp_path / "outputs/multirun").iterdir())) == 1
