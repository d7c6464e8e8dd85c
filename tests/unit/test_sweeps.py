"""How a sweep stands, from the files that its cells leave behind."""

from __future__ import annotations

import importlib.util
import os
import shlex
import socket
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.files import RunFolderError, write_json
from benchmarks.outcomes import (
    CellOutcome,
    CellStart,
    label_of,
    note_cells,
    note_jobs,
    note_outcome,
    note_start,
    note_sweep,
    read_outcomes,
    read_start,
)
from benchmarks.sweeps import Cell, Sweep, advice, read_sweep
from configs.sweep_cells import cells

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "sweep_status.py"
LABELS = ["method=pld seed=0", "method=pld seed=1", "method=rest seed=0", "method=rest seed=1"]


@pytest.fixture(autouse=True)
def without_slurm(monkeypatch):
    monkeypatch.setattr("benchmarks.sweeps.queued_jobs", lambda: None)
    # The tests themselves may run in a job.
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path):
    note_sweep(tmp_path, ["method=pld,rest", "seed=0,1"])
    note_cells(tmp_path, LABELS)
    return tmp_path


def end(folder, number, code=0, message=None):
    note_start(folder / str(number), LABELS[number])
    outcome = CellOutcome(label=LABELS[number], code=code, message=message)
    note_outcome(folder / str(number), outcome)


def states(folder):
    return [cell.state for cell in read_sweep(folder).cells]


def lose(folder, number):
    """A cell whose process is gone: a number above the largest that Linux gives."""
    start = CellStart(
        label=LABELS[number], host=socket.gethostname(), pid=2**22 + 1, job=None,
        time="2026-01-02T03:04:05+00:00",
    )  # fmt: skip
    (folder / str(number)).mkdir()
    write_json(folder / str(number) / "started.json", asdict(start))


def test_states(folder):
    end(folder, 0)
    end(folder, 1, code=1, message="all prompts failed\nand more")
    note_start(folder / "2", LABELS[2])
    sweep = read_sweep(folder)
    assert [cell.state for cell in sweep.cells] == ["done", "failed", "running", "missing"]
    assert sweep.cells[1].detail == "all prompts failed"
    assert sweep.cells[2].detail == f"{socket.gethostname()}, pid {os.getpid()}"
    assert [cell.label for cell in sweep.unfinished] == [LABELS[1], LABELS[3]]
    assert sweep.command == "python run.py -m method=pld,rest seed=0,1"


def test_a_cell_whose_process_is_gone_is_lost(folder):
    lose(folder, 0)
    assert read_sweep(folder).cells[0].state == "lost"


def test_a_second_attempt_forgets_the_first_outcome(folder):
    end(folder, 0, code=1, message="no memory")
    note_start(folder / "0", LABELS[0])
    assert read_sweep(folder).cells[0].state == "running"
    assert read_outcomes(folder) == []


def test_jobs_in_the_queue_wait_and_others_are_lost(folder, monkeypatch):
    monkeypatch.setattr("benchmarks.sweeps.queued_jobs", lambda: {"7_0", "7_1"})
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    for number in (0, 2):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(number))
        note_start(folder / str(number), LABELS[number])
    assert states(folder) == ["running", "missing", "lost", "missing"]
    note_jobs(folder, {number: f"7_{number}" for number in range(4)})
    assert states(folder) == ["running", "waiting", "lost", "missing"]
    assert read_start(folder / "2").job == "7_2"


def test_where_slurm_is_silent_nothing_is_submitted_twice(folder):
    note_jobs(folder, {1: "7_1"})
    assert states(folder) == ["missing", "waiting", "missing", "missing"]


def test_a_smaller_sweep_in_a_folder_has_its_own_cells_only(folder):
    for number in range(4):
        end(folder, number)
    note_sweep(folder, ["method=aasd"])
    note_cells(folder, ["method=aasd"])
    assert states(folder) == ["missing"]
    end(folder, 0)
    assert states(folder) == ["done"]


def test_a_sweep_whose_cells_could_not_be_composed_is_no_success(tmp_path, capsys):
    note_sweep(tmp_path, ["method=pld", "x=1"])
    assert program().main([str(tmp_path)]) == 1
    assert "no cell has been started: python run.py -m method=pld x=1" in capsys.readouterr().out


def test_a_sweep_forgets_the_one_that_was_in_its_folder(folder):
    end(folder, 0, code=1, message="of the first")
    note_sweep(folder, ["method=aasd"])
    note_cells(folder, ["method=aasd"])
    assert states(folder) == ["missing"]
    assert read_outcomes(folder) == []


def test_the_time_that_is_left_by_hand():
    """A row takes (50 + 100 + 30) / (5 + 10 + 3) = 10 s; 5 + 3 + 10 are left, two run at a time."""
    half = Cell(
        label="a", state="running", num_rows=5, num_new=5, num_expected=10, seconds=50.0
    )  # fmt: skip
    resumed = Cell(
        label="b", state="running", num_rows=7, num_new=3, num_expected=10, seconds=30.0
    )  # fmt: skip
    done = Cell(label="c", state="done", num_rows=10, num_new=10, num_expected=10, seconds=100.0)
    found = Cell(label="e", state="done", num_rows=10, num_expected=10, seconds=1.0)
    missing = Cell(label="d", state="missing")
    sweep = Sweep(folder=Path(), words=(), cells=(half, resumed, done, found, missing))
    assert sweep.seconds_left == pytest.approx(10 * 18 / 2)
    assert Sweep(folder=Path(), words=(), cells=(missing,)).seconds_left is None


def test_what_an_interrupted_cell_and_a_refused_one_are(folder, tmp_path):
    end(folder, 0, code=130, message="interrupted")
    run = tmp_path / "run"
    run.mkdir()
    note_start(folder / "1", LABELS[1], run)
    refused = CellOutcome(label=LABELS[1], code=2, message="another process is at it")
    note_outcome(folder / "1", refused)
    assert states(folder)[:2] == ["interrupted", "failed"]
    write_json(run / "status.json", {"state": "done"})  # By the other process.
    assert states(folder)[:2] == ["interrupted", "done"]


def test_the_rows_of_earlier_attempts_are_not_of_this_one(folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "requests.jsonl").write_text("{}\n{}\n")
    note_start(folder / "0", LABELS[0], run)
    (run / "requests.jsonl").write_text("{}\n{}\n{}\n")
    cell = read_sweep(folder).cells[0]
    assert (cell.num_rows, cell.num_new) == (3, 1)


def test_commands_can_be_typed_in_a_shell(folder):
    words = ["method=pld", "dataset.categories=[math,code]", "+note='a b'"]
    note_cells(folder, [label_of(words)])
    command = advice(read_sweep(folder))[-1].removeprefix("all that is not done: ")
    assert shlex.split(f"python run.py {read_sweep(folder).cells[0].label}")[2:] == words
    assert command == "python run.py -m method=pld,rest seed=0,1"


def test_the_table_says_how_to_go_on(folder):
    end(folder, 0)
    lose(folder, 3)
    lines = advice(read_sweep(folder))
    assert lines[0] == "1 done, 2 missing, 1 lost"
    assert "all that is not done: python run.py -m method=pld,rest seed=0,1" in lines
    assert f"  python run.py {LABELS[3]}" in lines
    assert f"  python run.py {LABELS[0]}" not in lines


def test_no_command_is_broken_into_lines(folder, capsys):
    """The second line would be the assignment of a shell variable, and the first a whole sweep."""
    words = [f"results_dir=/tmp/{'x' * 150}", "repeats=2"]
    note_sweep(folder, words)
    note_cells(folder, LABELS)
    assert program().main([str(folder)]) == 1
    assert f"python run.py -m {' '.join(words)}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "params", "labels"),
    [
        (["method=a,b", "seed=0"], {}, ["method=a seed=0", "method=b seed=0"]),
        (["x=range(2)", "y=1"], {}, ["x=0 y=1", "x=1 y=1"]),
        (["y=1"], {"method": "a,b"}, ["method=a y=1", "method=b y=1"]),
        (["x='a b'"], {}, [shlex.quote("x='a b'")]),
    ],
)
def test_cells_are_expanded_as_hydra_does(words, params, labels):
    assert cells(words, params) == labels


def program():
    place = importlib.util.spec_from_file_location("sweep_status", SCRIPT)
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_program(folder, capsys):
    module = program()
    for number in range(4):
        end(folder, number)
    assert module.main([str(folder)]) == 0
    lose_again = folder / "3" / "outcome.json"
    lose_again.unlink()
    assert module.main([str(folder)]) == 3  # This process is alive.
    end(folder, 3, code=1, message="no")
    assert module.main([str(folder)]) == 1
    assert module.main([str(folder / "0")]) == 2
    assert "is no folder of a sweep" in capsys.readouterr().err


def test_damaged_files_are_named(folder):
    (folder / "0").mkdir()
    write_json(folder / "0" / "outcome.json", {"what": 1})
    with pytest.raises(RunFolderError, match="a damaged file of a sweep"):
        read_sweep(folder)
