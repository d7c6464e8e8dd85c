"""Runs that are stopped early on the toy target: what is written, shown, and continued."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace

import pytest
from rich.console import Console

from benchmarks.comparison import comparable, print_comparison, table_of
from benchmarks.datasets.base import Prompt
from benchmarks.files import RunFolderError
from benchmarks.leaderboard import build_leaderboard
from benchmarks.leaderboard.columns import text_table
from benchmarks.leaderboard.tidy import tidy_frame
from benchmarks.outcomes import CellOutcome, note_cells, note_outcome, note_start, note_sweep
from benchmarks.report.groups import group_runs
from benchmarks.report.guards import notes
from benchmarks.results import read_run, read_runs
from benchmarks.runner import run
from benchmarks.sweeps import advice, read_sweep
from benchmarks.table import print_results
from methods.sampling import SamplingLaw
from primitives.retrievers.prompt_lookup import PromptLookup
from support.runs import (
    TEXTS,
    HookedTarget,
    make_dataset,
    make_method,
    make_spec,
    rows_of,
    status_of,
)

NOTE = "stopped at 8 of 18 prompts: slower than pld"


class Clock:
    """Goes on by a microsecond whenever it is read, so that no load of the machine is measured."""

    now = 0

    def __call__(self):
        self.now += 1_000
        return self.now


CLOCK = Clock()


@dataclass(kw_only=True)
class Slow(PromptLookup):
    """Thinks for a millisecond and finds nothing: by far slower than vanilla."""

    def propose(self, context, limit):
        CLOCK.now += 1_000_000
        return []


def spec_of(folder, retriever=None, name="pld", **changes):
    prompts = [
        Prompt(prompt_id=f"p{i}", category="ab"[i % 2], turns=(TEXTS[i % 6],)) for i in range(18)
    ]
    method = make_method(name, retriever or PromptLookup(), SamplingLaw())
    options = {"method": method, "dataset": make_dataset(prompts), "max_new_tokens": 5}
    return make_spec(folder, **(options | changes))


def slow(folder, **changes):
    return spec_of(folder, Slow(), "slow", **changes)


@pytest.fixture(scope="module", autouse=True)
def clock():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.clock.perf_counter_ns", CLOCK)
        yield


@pytest.fixture(scope="module")
def measured(clock, tmp_path_factory):
    """Results of a finished run of `pld`, and how a run of `slow` beside it ended."""
    folder = tmp_path_factory.mktemp("measured")
    run(spec_of(folder, stop_early=True))
    return folder, run(slow(folder, stop_early=True))


@pytest.fixture
def stopped(tmp_path, measured):
    folder, result = measured
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return replace(result, path=tmp_path / result.path.relative_to(folder))


def test_a_stopped_run_keeps_its_rows_and_says_why(stopped):
    assert stopped.failure is None
    assert stopped.was_stopped
    rows = rows_of(stopped.path)
    assert {row.prompt_id for row in rows} == {f"p{i}" for i in range(8)}
    status = status_of(stopped.path)
    assert (status["state"], status["num_rows"], status["num_expected"]) == ("stopped", 16, 36)
    assert status["reason"].startswith("after 8 of 18 prompts: speedup [")
    summary = read_run(stopped.path).summary
    assert summary["num_measured"] == 8
    assert summary["stopped"]["better"] == "pld"
    assert summary["stopped"] == status["stopped"]
    assert summary["certificate"]["status"] == "incomplete"


def test_without_a_rival_nothing_stops(tmp_path):
    assert status_of(run(slow(tmp_path, stop_early=True)).path)["state"] == "done"


def test_without_the_option_nothing_stops(tmp_path, stopped):
    assert status_of(run(slow(tmp_path, seed=1)).path)["state"] == "done"


def test_the_first_pass_is_judged_and_no_other(tmp_path):
    run(spec_of(tmp_path, repeats=2))
    result = run(slow(tmp_path, repeats=2, stop_early=True))
    assert {row.repeat for row in rows_of(result.path)} == {0}
    assert result.summary["stopped"]["num_prompts"] == 8


def test_the_same_command_measures_nothing(tmp_path, stopped):
    def fail(ids):
        raise AssertionError("a prompt was measured")

    again = run(slow(tmp_path, stop_early=True, target=HookedTarget(hook=fail)))
    assert again.was_finished
    assert again.was_stopped
    assert again.summary == stopped.summary


def test_without_the_option_it_is_continued_to_the_end(tmp_path, stopped):
    before = rows_of(stopped.path)
    whole = run(slow(tmp_path))
    assert whole.path == stopped.path
    assert rows_of(whole.path)[: len(before)] == before
    assert len(rows_of(whole.path)) == 36
    assert not whole.was_stopped
    status = status_of(whole.path)
    assert (status["state"], status["reason"]) == ("done", None)
    assert "stopped" not in status
    assert whole.summary["certificate"]["status"] == "passed"
    assert run(slow(tmp_path, stop_early=True)).was_finished


def test_the_run_id_does_not_depend_on_it(tmp_path):
    ids = {
        slow(tmp_path, stop_early=early, config={"stop_early": early, "seed": 0}).run_id
        for early in (True, False)
    }
    assert len(ids) == 1


def test_the_table_of_the_run_says_so(stopped):
    console = Console(width=100, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as capture:
        print_results(stopped.summary, console)
    assert f"{NOTE} (stop_early=false continues it)" in capture.get()


def test_a_comparison_shows_it_beside_what_it_lost_to(tmp_path, stopped, capsys):
    runs, unusable = read_runs([tmp_path], keep_stopped=True)
    assert unusable == []
    ((title, summaries),) = comparable(runs[::-1])
    assert "18 prompts x up to 5 tokens" in title
    heads, vanilla, *lines = table_of(summaries)
    place = heads.index("stopped early")
    assert {line[0]: line[place] for line in lines} == {
        "slow": NOTE.removeprefix("stopped "),
        "pld": "",
    }
    pld = next(run.summary for run in runs if not run.is_stopped)
    rate = pld["metrics"]["vanilla_tokens_per_second"]["value"]
    assert vanilla[heads.index("tok/s")] == f"{rate:.1f}"
    print_comparison(runs[::-1])
    assert "stopped early" in capsys.readouterr().out


def test_a_leaderboard_shows_it_without_a_rank(tmp_path, stopped):
    (board,) = build_leaderboard(*read_runs([tmp_path], keep_stopped=True)).boards
    table = text_table(board)
    place = table.header.index("Against the leader")
    assert {line[0].text: line[place].text for line in table.lines} == {
        "pld": "leader",
        "vanilla": "",
        "slow‡": NOTE,
    }
    assert {row.entry.label: row.rank for row in board.rows} == {
        "pld": 1, "vanilla": None, "slow": None,
    }  # fmt: skip
    frame = tidy_frame(build_leaderboard(*read_runs([tmp_path], keep_stopped=True)))
    assert dict(zip(frame["method"], frame["is_stopped"], strict=True)) == {
        "pld": False, "slow": True,
    }  # fmt: skip


def test_who_does_not_mark_it_does_not_get_it(tmp_path, stopped):
    runs, (unusable,) = read_runs([tmp_path])
    assert [run.facts["method"] for run in runs] == ["pld"]
    assert str(unusable) == f"{stopped.path}: not whole: {NOTE}"


def test_a_report_names_it(tmp_path, stopped):
    (group,) = group_runs(read_runs([tmp_path], keep_stopped=True)[0])
    assert {entry.label for entry in group.entries} == {"pld", "slow, stopped"}
    assert any(NOTE in str(note) for note in notes(group))


def test_files_that_disagree_are_refused(stopped):
    status = stopped.path / "status.json"
    status.write_text(status.read_text().replace('"state": "stopped"', '"state": "done"'))
    with pytest.raises(RunFolderError, match="disagree on an early stop"):
        read_run(stopped.path)


def test_a_sweep_tells_it_from_what_is_done(tmp_path, stopped, monkeypatch):
    monkeypatch.setattr("benchmarks.sweeps.queued_jobs", lambda: None)
    folder = tmp_path / "sweep"
    note_sweep(folder, ["method=pld,slow"])
    note_cells(folder, ["method=slow"])
    note_start(folder / "0", "method=slow", stopped.path)
    outcome = CellOutcome(label="method=slow", code=0, path=str(stopped.path))
    note_outcome(folder / "0", outcome)
    sweep = read_sweep(folder)
    (cell,) = sweep.cells
    assert (cell.state, cell.num_rows, cell.num_expected) == ("stopped", 16, 36)
    assert cell.detail.startswith("after 8 of 18 prompts")
    assert sweep.unfinished == []
    assert advice(sweep) == ["1 stopped"]
