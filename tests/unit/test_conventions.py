"""Every published definition on steps that are worked out by hand."""

from __future__ import annotations

import csv
import io
import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.conventions import panel
from benchmarks.metrics import summarize
from benchmarks.records import RequestError
from benchmarks.results import read_run
from benchmarks.runner import run
from support.rows import make_row, make_turn, path, two_prompts, vanilla_steps
from support.runs import make_spec, rows_of

ROOT = Path(__file__).resolve().parents[2]
main = runpy.run_path(str(ROOT / "scripts" / "conventions.py"))["main"]


def with_depths(row, *depths):
    """The row, with the depth of each step's draft; one tuple per turn."""
    turns = [with_depth(turn, of_turn) for turn, of_turn in zip(row.turns, depths, strict=True)]
    return replace(row, turns=tuple(turns))


def with_depth(turn, depths):
    """One branch only: what is deeper than the kept path lies right below its end."""
    pairs = zip(turn.steps.reasons, depths, strict=True)
    below = tuple(int(len(reasons) - 1 < depth) for reasons, depth in pairs)
    return replace(turn, steps=replace(turn.steps, draft_depth=depths, num_below=below))


def two_prompts_with_depths():
    """N=10, T=2, S=5, D=3, E=8, A=3, P=10; kept 2 of 4, 0 of 0, 1 of 2; 0 of 2, 0 of 0."""
    rows = two_prompts()
    depths = {"a": (4, 0, 2), "b": (2, 0)}
    return [with_depths(row, depths[row.prompt_id]) if row.arm == "method" else row for row in rows]


def values_of(requests):
    return {(row.name, row.used_by.split(",")[0]): row.value for row in panel(requests)}


BY_HAND = {
    ("tau", "this project"): 8 / 5,
    ("tau, macro", "this project"): (6 / 3 + 2 / 2) / 2,
    ("block efficiency", "Leviathan-line papers"): 8 / 5,
    ("#Mean Accepted Tokens", "Spec-Bench"): 10 / 7,
    ("average acceptance length", "EAGLE"): (3 + 5) / 5,
    ("new_tokens / idxs", "users of EAGLE's answer files"): 10 / (2 + 1),
    ("mean_acceptance_length", "vLLM"): 1 + 3 / 3,
    ("accept_length", "SGLang"): 10 / 5,
    ("Average_AL", "specdec_bench"): (6 / 3 + 2 / 2) / 2,
    ("accept_len", "DeepSpec"): 8 / 5,
    ("accept_lengths_tree_micro", "REST"): 10 / 7,
    ("accept_lengths_tree", "REST"): (7 / 4 + 3 / 3) / 2,
    ("compression ratio", "Lookahead"): 10 / 7,
    ("req_speedup", "Arctic simulator"): (6 / 3 + 2 / 2) / 2,
    ("Mean Accepted Length", "DReSD"): 3 / 5,
    # alpha is 1/2: depths 4, 0, 2, 2, 0 give 1.9375, 1, 1.75, 1.75, 1.
    ("tau predicted by alpha", "Leviathan-line papers"): 7.4375 / 5,
    ("alpha", "Leviathan-line papers"): 3 / (3 + 3),
    ("node acceptance rate", "this project"): 3 / 10,
    ("Acceptance Rate, overall", "DReSD"): 3 / 10,
    ("Acceptance Rate, sequence", "DReSD"): (3 / 8 + 0 / 2) / 2,
    ("path acceptance rate", "this project"): 3 / (4 + 2 + 2),
    ("verify_rate", "DeepSpec"): 8 / (10 + 5),
    ("draft coverage", "this project"): 3 / 5,
    ("0-alpha", "EAGLE"): 2 / 3,
    ("1-alpha", "EAGLE"): 1 / 2,
    ("2-alpha", "EAGLE"): 0 / 1,
    ("3-alpha", "EAGLE"): None,
    ("4-alpha", "EAGLE"): None,
    ("acceptance at position 0", "vLLM"): 2 / 3,
    ("acceptance at position 1", "vLLM"): 1 / 3,
    ("acceptance at position 2", "vLLM"): 0,
    ("acceptance at position 3", "vLLM"): 0,
    ("acceptance at position 4", "vLLM"): 0,
    ("c", "papers"): (50 + 100) / (210 + 600),
    ("walltime speedup", "most papers"): 1600 / 1300,
    ("walltime speedup", "Spec-Bench"): (7 / 500 + 3 / 800) / (7 / 1000 + 3 / 600),
}


def test_another_branch_is_no_refusal():
    """A leaf at depth 1 is kept while another branch goes down to 3: nothing followed the leaf."""
    vanilla, method = two_prompts()[:2]
    method = make_row("a", "method", make_turn([(4, path("em"))], wall_ns=500))
    turn = method.turns[0]
    for num_below, alpha in (((0,), 1.0), ((2,), 0.5), (None, None)):
        steps = replace(turn.steps, draft_depth=(3,), num_below=num_below)
        row = replace(method, turns=(replace(turn, steps=steps),))
        assert values_of([vanilla, row])["alpha", "Leviathan-line papers"] == alpha


def test_every_convention_by_hand():
    values = values_of(two_prompts_with_depths())
    assert values.keys() == BY_HAND.keys()
    for name, expected in BY_HAND.items():
        assert values[name] == (None if expected is None else pytest.approx(expected)), name


def two_turns(turns, wall_ns=100):
    vanilla = [make_turn(vanilla_steps(1), wall_ns=wall_ns) for _ in turns]
    return [make_row("a", "vanilla", *vanilla), make_row("a", "method", *turns)]


def test_eos_inside_a_draft_and_a_second_turn():
    """Turn 1 ends by EOS in its only step, 1 kept of 2; turn 2 has a step without a draft."""
    cut = make_turn([(2, path("em"))], wall_ns=100, ids=(1, 2))
    plain = make_turn([(0, path())], wall_ns=100)
    vanilla, method = two_turns([cut, plain])
    values = values_of([vanilla, with_depths(method, (2,), (0,))])
    assert values["tau", "this project"] == 1
    assert values["average acceptance length", "EAGLE"] == 1.5  # A bonus that nobody got.
    assert values["alpha", "Leviathan-line papers"] == 1  # Nothing was refused.
    assert values["tau predicted by alpha", "Leviathan-line papers"] == (3 + 1) / 2
    assert values["0-alpha", "EAGLE"] == 1
    assert values["1-alpha", "EAGLE"] is None
    assert values["verify_rate", "DeepSpec"] == pytest.approx(1 / 3)  # First turns only.
    assert values["new_tokens / idxs", "users of EAGLE's answer files"] is None
    assert values["Average_AL", "specdec_bench"] == 1


def test_macro_over_answers_is_not_macro_over_requests():
    long = make_turn([(2, path("em", "em"))] * 3, wall_ns=100)  # 9 tokens in 3 steps.
    short = make_turn([(0, path())], wall_ns=100)  # 1 token in 1 step.
    vanilla, method = two_turns([long, short])
    values = values_of([vanilla, with_depths(method, (2, 2, 2), (0,))])
    assert values["Average_AL", "specdec_bench"] == (9 / 3 + 1 / 1) / 2
    assert values["req_speedup", "Arctic simulator"] == 10 / 4
    assert values["accept_len", "DeepSpec"] == 3


def test_without_drafts_rates_are_undefined():
    turn = make_turn(vanilla_steps(3), wall_ns=50, forward=40)
    values = values_of([make_row("a", "vanilla", turn), make_row("a", "method", turn)])
    for name in ("alpha", "node acceptance rate", "path acceptance rate", "c", "0-alpha"):
        assert [value for (key, _), value in values.items() if key == name] == [None]
    assert values["mean_acceptance_length", "vLLM"] is None
    assert values["tau", "this project"] == 1
    assert values["draft coverage", "this project"] == 0


def test_failed_prompts_do_not_count():
    error = RequestError(type="E", message="m")
    turn = make_turn([(9, path("em"))], wall_ns=1)
    failed = [make_row("c", "vanilla", error=error), make_row("c", "method", turn)]
    assert values_of([*two_prompts_with_depths(), *failed]) == values_of(two_prompts_with_depths())


def test_nothing_measured():
    assert {row.value for row in panel([])} == {None}


def test_names_and_ids_are_complete():
    rows = panel(two_prompts_with_depths())
    assert all(row.formula and row.trap and row.unit for row in rows)
    same = {row.value for row in rows if row.definition_id == rows[0].definition_id}
    assert same == {rows[0].value}


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory):
    return run(make_spec(tmp_path_factory.mktemp("results"), repeats=2)).path


def test_conventions_that_metrics_know_agree_with_them(toy_run):
    requests = rows_of(toy_run)
    metrics = summarize(requests, is_greedy=True, is_lossless=True)["metrics"]
    known = {
        metric["definition"]: metric["value"]
        for name, metric in metrics.items()
        if not name.startswith("vanilla_")
    }
    rows = [row for row in panel(requests) if row.definition_id in known]
    assert len({row.definition_id for row in rows}) == 6
    for row in rows:
        # Times of repeats are medians in both.
        assert row.value == pytest.approx(known[row.definition_id]), row.name


def test_the_script_prints_all_formats(toy_run, capsys, tmp_path):
    for form in ("text", "markdown"):
        assert main([str(toy_run), "--format", form]) == 0
        assert "req_speedup" in capsys.readouterr().out
    assert main([str(toy_run), "--format", "csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["convention"] for line in lines] == [r.name for r in panel(rows_of(toy_run))]
    assert lines[0]["run_id"] == read_run(toy_run).facts["run_id"]
    assert main([str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_runs_without_rows_are_named_and_the_others_shown(toy_run, capsys, tmp_path):
    for name in ("kept", "bare", "cut"):
        shutil.copytree(toy_run, tmp_path / name)
    (tmp_path / "bare" / "requests.jsonl").unlink()
    (tmp_path / "cut" / "status.json").unlink()
    assert main([str(tmp_path), "--format", "markdown"]) == 0
    out, err = capsys.readouterr()
    assert out.count("| req_speedup |") == 1
    assert f"left out: {tmp_path / 'bare'}: no rows to count from: they were not kept\n" in err
    assert f"left out: {tmp_path / 'cut'}: half-written" in err


def test_nothing_but_runs_without_rows(toy_run, capsys, tmp_path):
    shutil.copytree(toy_run, tmp_path / "bare")
    (tmp_path / "bare" / "requests.jsonl").unlink()
    assert main([str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("error: no run has rows to show; left out: 1\n")
