"""Scored runs from the command's side: what is scored when, and what a second look may add."""

from __future__ import annotations

import json

import pytest

import configs
from benchmarks.cli import measure
from benchmarks.results import read_run
from benchmarks.scoring.score_rows import read_scores

TASK = {
    "task_id": "HumanEval/0",
    "prompt": 'def one():\n    """The number one."""\n',
    "canonical_solution": "    return 1\n",
    "entry_point": "one",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def go(tmp_path, dataset, path, *overrides):
    outcome = measure(
        configs.composed(
            "method=pld",
            "debug=toy",
            f"dataset={dataset}",
            f"dataset.path={path}",
            f"results_dir={tmp_path / 'results'}",
            "progress=false",
            "limit=null",
            *overrides,
        )
    )
    assert outcome.code == 0, outcome.message
    return read_run(outcome.path)


def test_a_lossless_method_scores_what_vanilla_scores(tmp_path, capsys):
    questions = [{"question": f"How many words? {n}", "answer": f"#### {n}"} for n in range(30)]
    run = go(tmp_path, "gsm8k", written(tmp_path / "test.jsonl", questions))
    metrics = run.summary["metrics"]
    assert 0.0 < metrics["score.exact_match"]["value"] < 0.5  # A few are right by chance.
    assert metrics["score.exact_match"] == metrics["vanilla_score.exact_match"]
    assert metrics["relative_score.exact_match"]["value"] == 1.0
    assert metrics["score_change.exact_match"]["interval"] == [0.0, 0.0]
    rows = read_scores(run.path / "scores.jsonl")
    assert len(rows) == 60
    assert {row.arm for row in rows} == {"vanilla", "method"}
    printed = capsys.readouterr().out
    assert "exact match" in printed
    assert "no difference" in printed


def test_code_runs_only_when_allowed_and_then_also_for_a_finished_run(tmp_path, capsys):
    path = written(tmp_path / "HumanEval.jsonl", [TASK])
    first = go(tmp_path, "humaneval", path)
    assert not (first.path / "scores.jsonl").exists()
    assert "score.pass@1" not in first.summary["metrics"]
    rows = (first.path / "requests.jsonl").read_bytes()

    second = go(tmp_path, "humaneval", path, "allow_code_execution=true")
    assert second.path == first.path
    assert second.summary["metrics"]["score.pass@1"]["value"] == 0.0  # The toy cannot program.
    assert (second.path / "requests.jsonl").read_bytes() == rows
    assert "nothing was measured again" in capsys.readouterr().out


def test_a_reference_that_cannot_be_compared_stops_before_the_first_prompt(tmp_path):
    path = written(tmp_path / "test.jsonl", [{"question": "How many?", "answer": "many"}])
    outcome = measure(
        configs.composed(
            "method=pld",
            "debug=toy",
            "dataset=gsm8k",
            f"dataset.path={path}",
            f"results_dir={tmp_path / 'results'}",
        )
    )
    assert outcome.code == 2
    assert "prompt '1'" in outcome.message
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("name", "value"), [("state", "warm"), ("state", "carry")])
def test_state_and_order_make_runs_of_their_own(tmp_path, name, value):
    runs = {
        go(tmp_path, "gsm8k", folder_with_splits(tmp_path), *words).path
        for words in ([], [f"{name}={value}"], [f"{name}={value}", "order_seed=1"])
    }
    assert len(runs) == 3


def folder_with_splits(tmp_path):
    for split in ("train", "test"):
        rows = [{"question": f"{split} {n}?", "answer": f"#### {n}"} for n in range(4)]
        written(tmp_path / f"{split}.jsonl", rows)
    return tmp_path
