"""Programs say what they take, and refuse the rest in one message before anything runs."""

from __future__ import annotations

import re
import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.runner import run
from support.runs import make_spec

pytestmark = pytest.mark.slow  # `make check` is for while one writes.

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@cache
def program(name):
    """The `main` of a script."""
    return runpy.run_path(str(SCRIPTS / f"{name}.py"))["main"]


def stopped(name, *arguments):
    """The exit status of a script that its command line stops."""
    with pytest.raises(SystemExit) as stop:
        program(name)([str(argument) for argument in arguments])
    return stop.value.code


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("quickstart_answers", ["writes\nanswers-smollm2-135m.jsonl", "Reads the questions"]),
        ("readme_table", ["Reads the runs in results/sample", "writes the tables", "--check"]),
    ],
)
def test_help_says_what_is_read_and_written(capsys, name, words):
    assert stopped(name, "--help") == 0
    text = capsys.readouterr().out
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("name", ["quickstart_answers", "readme_table"])
def test_unknown_options_are_refused(capsys, name):
    assert stopped(name, "--chek", "x") == 2
    assert "unrecognized arguments: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "option", "value", "rule"),
    [
        ("bench", "--prompts", "0", "a whole number ≥ 1"),
        ("bench", "--tokens", "-3", "a whole number ≥ 1"),
        ("bench", "--rounds", "two", "a whole number ≥ 1"),
        ("bench", "--threads", "1.5", "a whole number ≥ 1"),
        ("bench_hidden_states", "--keys", "0", "a whole number ≥ 1"),
        ("bench_hidden_states", "--noise", "inf", "a number ≥ 0"),
        ("bench_hidden_states", "--seed", "-1", "a whole number ≥ 0"),
        ("bench_suffix_array", "--tokens", "0.5", "a number ≥ 1"),
        ("bench_store_sizes", "--sizes", "0", "a whole number ≥ 1"),
        ("report", "--prompts", "٣", "a whole number ≥ 1"),
    ],
)
def test_numbers_are_checked(capsys, name, option, value, rule):
    required = ["results"] if name == "report" else []
    assert stopped(name, *required, f"{option}={value}") == 2
    assert f"argument {option}: must be {rule}, got '{value}'\n" in capsys.readouterr().err


def test_arms_take_turns_and_their_median_counts():
    """Neither who comes first nor one lucky round decides."""
    interleaved = program("bench_suffix_array").__globals__["interleaved"]
    asked = []
    took = {"a": iter([7, 1, 4, 4, 4, 4]), "b": iter([2, 2, 9, 3, 1, 8])}

    def arm(name):
        return lambda query: asked.append((name, *query)) or name == "a"

    def seconds(work):
        work()
        return next(took[asked[-1][0]]) / 10**6

    interleaved.__globals__["seconds"] = seconds
    times, found = interleaved({name: arm(name) for name in "ab"}, [[0], [1]])
    assert times == {"a": pytest.approx([4, 4]), "b": pytest.approx([2, 3])}
    assert found == {"a": [True, True], "b": [False, False]}
    firsts = [name for name, _ in asked[4:]]
    assert "".join(firsts) == "abbaab" + "ab" + "baabba" + "ab"  # Timed, and asked once more.


def test_suffix_structures_take_turns():
    interleaved = program("bench_suffix_tree").__globals__["interleaved"]
    order = []

    class Arm:
        def __init__(self, name):
            self.name = name

        def begin(self, ids, num_prompt):
            order.append(self.name)

        def observe(self, stop):
            return lambda: order.append(self.name)

        def propose(self, stop):
            return lambda: 0.5

    times, scores = interleaved({name: Arm(name) for name in "ab"}, [np.arange(6)], 2)
    assert "".join(order) == "ab" + "abbaab" + "ba" + "abbaab"  # Warm-up, then the request.
    assert {name: [len(values) for values in rows] for name, rows in times.items()} == {
        "a": [1, 3, 3],
        "b": [1, 3, 3],
    }
    assert scores == {"a": [0.5] * 3, "b": [0.5] * 3}


@pytest.mark.parametrize("words", [["report"], ["spec_bench", "export"]])
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("no/file", "file: there is no folder .*no\n"),
        ("runs", "must be a file, .*runs is a folder"),
    ],
)
def test_an_output_is_checked_first(tmp_path, capsys, words, output, message):
    folder = run(make_spec(tmp_path / "runs")).path
    before = sorted(tmp_path.rglob("*"))
    assert stopped(*words, folder, "--output", tmp_path / output) == 2
    assert re.search(f"argument --output: .*{message}", capsys.readouterr().err)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["-h"], 0), (["x=1", "--help"], 0)])
def test_audit_usage(capsys, arguments, code):
    assert program("audit_state")(arguments) == code
    told = capsys.readouterr()
    assert "python scripts/audit_state.py method=pld debug=toy" in (told.err if code else told.out)


def audit(tmp_path, *overrides):
    """An audit on the toy target."""
    own = ["debug=toy", "num_generate_prompts=0", f"results_dir={tmp_path / 'runs'}"]
    return program("audit_state")([*own, *overrides])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["state=carry"], "state=carry: the audit sets state and order_seed itself: leave it out"),
        (["++order_seed=3"], "++order_seed=3: the audit sets state and order_seed itself"),
        (["method=pdl"], "unknown method 'pdl', did you mean 'pld'?"),
        (["warmups=1"], "Could not override 'warmups'.\n"),
        (["temperature=0.5", "verifier=sampling"], "temperature=0.5: the audit needs greedy"),
        (["temperature=-1"], "temperature must be"),
        (["dataset=jsonl", "dataset.path=/nowhere"], "/nowhere: no such file"),
        (["limit=0"], "state 'reset': limit must be ≥ 1 or null, got 0"),
    ],
)
def test_audit_refusals(tmp_path, capsys, overrides, message):
    assert audit(tmp_path, *overrides) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert out == ""
    assert not (tmp_path / "runs").exists()


def test_audit_prints_its_table_only(tmp_path, capsys):
    assert audit(tmp_path, "limit=2", "max_new_tokens=8") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["state", "tau"]
    names = [line.split("  ")[0].rstrip() for line in lines[2:7]]
    assert names == ["reset", "carry", "shuffled 1", "shuffled 2", "warm"]
    assert len(lines) == 9  # Then a blank line and a sentence about the retriever.


def test_audit_without_a_train_split(tmp_path, capsys):
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question_id": 1, "turns": ["a b a b"]}\n')
    overrides = ["dataset=jsonl", f"dataset.path={questions}", "max_new_tokens=8"]
    assert audit(tmp_path, *overrides) == 0
    out, err = capsys.readouterr()
    assert err.startswith("left out: warm, which needs a train split: split of dataset=jsonl")
    assert "shuffled 2" in out
    assert "warm" not in out
