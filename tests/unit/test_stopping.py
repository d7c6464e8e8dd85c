"""When a run is looked at, what it is compared with, and when it stops: by hand-made rows."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.datasets.base import Dataset, Prompt
from benchmarks.files import RunFolderError
from benchmarks.metrics import summarize
from benchmarks.runner import run
from benchmarks.shards import Shard
from benchmarks.statistics import bootstrap, ratio
from benchmarks.stopping import EarlyStopping, check_order, look_numbers, speedup_interval
from benchmarks.summary_text import stop_note
from support.rows import make_row, make_turn, vanilla_steps
from support.runs import make_dataset, make_method, make_spec, rows_of, status_of

WORDS = "the cat sat on the mat and the cat sat on the hat"


def many(num_prompts=20, categories=("even", "odd")):
    return make_dataset(
        [
            Prompt(prompt_id=f"p{i}", category=categories[i % len(categories)], turns=(WORDS,))
            for i in range(num_prompts)
        ]
    )


def timed(times, *, tokens=4, vanilla_ns=1200):
    """Rows of prompts whose method takes these times."""
    rows = []
    for number, wall_ns in enumerate(times):
        category = ("even", "odd")[number % 2]
        vanilla = make_turn(vanilla_steps(tokens - 1), wall_ns=vanilla_ns)
        method = make_turn(vanilla_steps(tokens - 1), wall_ns=wall_ns)
        rows.append(make_row(f"p{number}", "vanilla", vanilla, category=category))
        rows.append(make_row(f"p{number}", "method", method, category=category))
    return rows


def slowed(path, factor):
    """A finished run's rows with all times of the method multiplied."""
    rows = []
    for row in rows_of(path):
        if row.arm == "method":
            (turn,) = row.turns
            phases = {name: ns * factor for name, ns in turn.phase_ns.items()}
            row = replace(
                row, turns=(replace(turn, wall_ns=turn.wall_ns * factor, phase_ns=phases),)
            )
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("num_prompts", "looks"),
    [(1, ()), (8, ()), (9, (8,)), (16, (8,)), (17, (8, 16)), (48, (8, 16, 32)), (64, (8, 16, 32))],
)
def test_looks_double_and_leave_the_last_prompt_out(num_prompts, looks):
    assert look_numbers(num_prompts) == looks


def test_the_level_is_split_over_the_looks(tmp_path):
    assert EarlyStopping(make_spec(tmp_path, dataset=many(48)), tmp_path).looks == ()
    stopping = EarlyStopping(make_spec(tmp_path, dataset=many(48), stop_early=True), tmp_path)
    assert stopping.level == pytest.approx(1 - 0.05 / 3)


def test_vanilla_is_never_looked_at(tmp_path):
    spec = make_spec(tmp_path, dataset=many(48), stop_early=True)
    spec = replace(spec, method=make_method("vanilla", None, spec.law))
    assert EarlyStopping(spec, tmp_path).looks == ()


def test_the_interval_is_that_of_the_summary():
    rows = timed([300, 600, 400, 500, 700, 350])
    ids = frozenset(f"p{i}" for i in range(6))
    for is_lossless in (True, False):
        summary = summarize(rows, is_greedy=True, is_lossless=is_lossless)
        expected = summary["metrics"][summary["primary_speedup"]]["interval"]
        assert speedup_interval(rows, ids, 0.95) == pytest.approx(expected)
    assert bootstrap(np.ones((3, 2)), ratio) is None
    assert speedup_interval(rows, frozenset({"p1", "p2"}), 0.95) is None


def test_only_the_prompts_asked_for_count():
    rows = timed([600] * 8 + [60] * 8)
    assert speedup_interval(rows, frozenset(f"p{i}" for i in range(8)), 0.95) == (2.0, 2.0)


def test_a_wider_level_gives_a_wider_interval():
    rows = timed([300, 600, 400, 500, 700, 350, 900, 200])
    ids = frozenset(f"p{i}" for i in range(8))
    low, high = speedup_interval(rows, ids, 0.95)
    wide_low, wide_high = speedup_interval(rows, ids, 1 - 0.05 / 3)
    assert wide_low < low < high < wide_high


def test_prompts_sorted_by_category_are_refused():
    prompts = [Prompt(prompt_id=f"{i}", category="ab"[i > 18], turns=("x",)) for i in range(20)]
    dataset = Dataset.from_prompts(prompts, name="sorted", split="test", source="here")
    with pytest.raises(
        ValueError,
        match=r"first 16 of 20 prompts at most, but category 'b' of dataset sorted begins at "
        r"prompt 20: mix them with order_seed=N, or with another N",
    ):
        check_order(dataset)
    check_order(many(20))
    check_order(many(8, categories="abcdefgh"))  # Too few to be looked at: nothing to refuse.


def test_shards_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"stop_early=true needs all prompts .*got shard=1/2"):
        make_spec(tmp_path, stop_early=True, shard=Shard.parse("1/2"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Results with one finished run of 20 prompts."""
    folder = tmp_path_factory.mktemp("measured")
    run(make_spec(folder, dataset=many(), max_new_tokens=6))
    return folder


class Judged:
    """A best run in a folder, and a second run that is looked at with rows made by hand."""

    def __init__(self, tmp_path):
        (self.best,) = (tmp_path / "toy" / "toy" / "pld").iterdir()
        self.spec = make_spec(tmp_path, dataset=many(), max_new_tokens=6, stop_early=True, seed=1)
        self.folder = self.spec.path
        self.folder.mkdir(parents=True)
        env = json.loads((self.best / "env.json").read_text())
        env["run"] = env["run"] | {"run_id": self.spec.run_id}
        (self.folder / "env.json").write_text(json.dumps(env))

    def look(self, num_prompts, rows):
        return EarlyStopping(self.spec, self.folder).look(num_prompts, rows)


@pytest.fixture
def judged(tmp_path, measured):
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    return Judged(tmp_path)


def first(rows, num_prompts):
    return rows[: 2 * num_prompts]


def test_what_is_surely_slower_stops_and_says_why(judged):
    stop = judged.look(8, first(slowed(judged.best, 5000), 8))
    assert (stop.num_prompts, stop.num_total, stop.better) == (8, 20, "pld")
    assert stop.better_run_id == judged.best.name
    assert stop.interval[1] < stop.better_interval[0]
    assert stop.level == pytest.approx(0.975)
    assert stop.reason.startswith("after 8 of 20 prompts: speedup [")
    assert stop_note({"stopped": stop.to_json()}) == "stopped at 8 of 20 prompts: slower than pld"


def test_what_is_as_fast_or_faster_goes_on(judged):
    assert judged.look(8, first(rows_of(judged.best), 8)) is None
    faster = [
        replace(row, turns=(replace(row.turns[0], wall_ns=row.turns[0].wall_ns * 50),))
        if row.arm == "vanilla"
        else row
        for row in rows_of(judged.best)
    ]
    assert judged.look(8, first(faster, 8)) is None


@pytest.mark.parametrize("num_prompts", [4, 7, 9, 12, 20])
def test_between_looks_nothing_is_judged(judged, num_prompts):
    assert judged.look(num_prompts, first(slowed(judged.best, 5000), num_prompts)) is None


def test_nothing_is_judged_before_all_categories_were_met(judged):
    rows = [row for row in slowed(judged.best, 5000) if row.category == "even"][:16]
    assert judged.look(8, rows) is None


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("run", {"dtype": "bfloat16"}),
        ("run", {"max_new_tokens": 7}),
        ("run", {"model": "another"}),
        ("hashes", {"dataset": "other prompts"}),
        ("code", "another version"),
        ("session", {"device_name": "another chip"}),
    ],
)
def test_only_what_a_leaderboard_ranks_beside_it_counts(judged, where, change):
    rows = first(slowed(judged.best, 5000), 8)
    assert judged.look(8, rows) is not None
    env = json.loads((judged.folder / "env.json").read_text())
    if where == "code":
        env["code_version"] = change
    elif where == "session":
        env["sessions"][-1] |= change
    else:
        env[where] |= change
    (judged.folder / "env.json").write_text(json.dumps(env))
    assert judged.look(8, rows) is None


def test_a_run_that_has_not_finished_is_no_rival(judged):
    rows = first(slowed(judged.best, 5000), 8)
    status = judged.best / "status.json"
    status.write_text(json.dumps(status_of(judged.best) | {"state": "interrupted"}))
    assert judged.look(8, rows) is None


def test_a_lost_env_is_told(judged):
    (judged.folder / "env.json").unlink()
    with pytest.raises(RunFolderError, match=r"has lost its env\.json while it was measured"):
        judged.look(8, first(slowed(judged.best, 5000), 8))
