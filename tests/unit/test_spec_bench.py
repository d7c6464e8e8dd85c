"""Spec-Bench answer files: what the linter finds, what an import makes of them, the way back."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path

import pytest

from benchmarks.comparison import render_comparison
from benchmarks.console import plain_console
from benchmarks.datasets.reader import DatasetError
from benchmarks.files import write_json
from benchmarks.metrics import summarize
from benchmarks.records import SCHEMA_VERSION, RequestError
from benchmarks.results import read_run
from benchmarks.runner import run
from benchmarks.spec_bench.answers import read_answers
from benchmarks.spec_bench.export import export_run
from benchmarks.spec_bench.imports import ImportOptions, import_answers
from benchmarks.spec_bench.lint import lint
from benchmarks.spec_bench.names import NameFault, parse_names
from benchmarks.spec_bench.tasks import TASK_GROUPS, task_of
from benchmarks.table import render
from support.rows import make_row, make_turn, two_prompts, vanilla_steps
from support.runs import make_spec, rows_of

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
main = runpy.run_path(str(ROOT / "scripts" / "spec_bench.py"))["main"]
PEERS = DATA / "peer_outputs" / "yukiki-jc"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs the shared data sets")

METHOD_ID, VANILLA_ID = "m-7b-eagle-float16-temp-0.0", "m-7b-vanilla-float16-temp-0.0"


def answer(question_id, lengths, wall_time, *, texts=None, model_id=METHOD_ID, **changes):
    """`lengths`: accept_lengths of each turn."""
    choice = {
        "index": 0,
        "turns": texts or ["fine"] * len(lengths),
        "decoding_steps": [len(turn) for turn in lengths],
        "new_tokens": [sum(turn) for turn in lengths],
        "wall_time": wall_time,
        "accept_lengths": [length for turn in lengths for length in turn],
    }
    choice = {key: value for key, value in (choice | changes).items() if value is not None}
    row = {"question_id": question_id, "category": "qa", "answer_id": f"a{question_id}"}
    return row | {"model_id": model_id, "choices": [choice], "tstamp": 0.0}


def write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def found(path, questions=None):
    return [(finding.line, finding.rule, finding.severity) for finding in lint(path, questions)]


@needs_data
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("error_rows", [(2, "error-row", "error")]),
        ("misspelt_key", [(1, "misspelt-key", "error")]),
        (
            "rerun_appended",
            [(2, "copied-numbers", "warning"), (3, "duplicate-question", "error")],
        ),
        ("steps_mismatch", [(1, "steps-mismatch", "error")]),
    ],
)
def test_dirty_files(name, expected):
    assert found(DATA / "dirty" / f"answers_{name}.jsonl") == expected


@needs_data
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("eagle-float16-temperature-0.0", []),
        ("sps-68m-float16-temp-0.0", [(12, "at-limit", "note")]),
        ("vanilla-float16-temp-0.0", [(12, "at-limit", "note")]),
    ],
)
def test_published_files_have_no_errors(name, expected):
    path = PEERS / f"vicuna-7b-v1.3-{name}.jsonl"
    assert found(path, DATA / "spec_bench" / "question.jsonl") == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"decoding_steps": [4]}, [("steps-mismatch", "error")]),
        ({"new_tokens": [6]}, [("overshoot", "warning")]),
        ({"new_tokens": [3]}, [("tokens-mismatch", "error")]),
        ({"new_tokens": [8]}, [("tokens-mismatch", "error")]),
        ({"new_tokens": [0]}, [("error-row", "error")]),
        ({"wall_time": [math.nan]}, [("error-row", "error")]),
        ({"texts": ["ERROR"]}, [("error-row", "error")]),
        ({"texts": ["done</s> USER: more"]}, [("text-behind-end", "warning")]),
        ({"texts": ["done</s>\n"]}, []),
        ({"wall_time": None}, [("bad-row", "error")]),
        ({"wall_time": [0.5, 0.5]}, [("bad-row", "error")]),
        ({"decoding_steps": None, "idxs": [2], "accept_lengths": None}, []),
        ({"decoding_steps": None, "idxs": [2]}, []),
        # REST: a leading 1 for the prefill, and no step for it.
        ({"decoding_steps": None, "idxs": [2], "accept_lengths": [1, 2, 2, 2]}, []),
        ({"decoding_steps": None, "idxs": [3]}, [("steps-mismatch", "error")]),
        ({"accept_lengths": [[3, 2, 2]]}, []),
        ({"new_token": [7]}, []),
        ({"new_tokens": None, "new_token": [7]}, [("bad-row", "error"), ("misspelt-key", "error")]),
    ],
)
def test_rules_on_one_row(tmp_path, changes, expected):
    fields = {"wall_time": [0.5]} | changes
    path = write(tmp_path / "a.jsonl", [answer(1, [[3, 2, 2]], **fields)])
    assert found(path) == [(1, *fault) for fault in expected]


def test_a_cut_line_a_bad_line_and_gaps_against_the_questions(tmp_path):
    path = write(tmp_path / "a.jsonl", [answer(1, [[2]], [0.5]), answer(9, [[2]], [0.6])])
    path.write_text(path.read_text() + "[1]\n" + '{"question_id": 2, "categ')
    turns = [(1, ["one", "two"]), (2, ["one"])]
    questions = write(
        tmp_path / "q.jsonl", [{"question_id": n, "turns": texts} for n, texts in turns]
    )
    assert found(path, questions) == [
        (1, "turns-mismatch", "error"),
        (2, "unknown-question", "error"),
        (3, "bad-line", "error"),
        (4, "cut-line", "error"),
        (None, "missing-questions", "error"),
    ]
    assert "1 of 2 questions of q.jsonl have no answer: 2" in str(lint(path, questions)[-1])
    assert str(lint(path)[0]).startswith(f"{path}:3: error [bad-line] expected a JSON object")


def test_rules_over_rows(tmp_path):
    rows = [
        answer(1, [[10, 10]], [0.5]),
        answer(2, [[10, 10]], [0.5], texts=["ERROR"]),  # Numbers of the previous question.
        answer(3, [[10, 10]], [0.7], model_id="other"),
        answer(1, [[2]], [0.8]),
    ]
    assert found(write(tmp_path / "a.jsonl", rows)) == [
        (1, "at-limit", "note"),
        (2, "copied-numbers", "warning"),
        (2, "error-row", "error"),
        (3, "mixed-models", "warning"),
        (4, "duplicate-question", "error"),
    ]


def test_lint_exit_codes(tmp_path, capsys):
    good = write(tmp_path / "good.jsonl", [answer(1, [[2]], [0.5])])
    bad = write(tmp_path / "bad.jsonl", [answer(1, [[2]], [0.5], decoding_steps=[2])])
    assert main(["lint", str(good)]) == 0
    assert main(["lint", str(good), str(bad)]) == 1
    assert capsys.readouterr().out.endswith("2 files: 1 error, 0 warnings, 0 notes\n")
    assert main(["lint", str(tmp_path / "none.jsonl")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_idxs_are_last_indices(tmp_path):
    changes = {"decoding_steps": None, "accept_lengths": None, "idxs": [1, 0]}
    path = write(tmp_path / "a.jsonl", [answer(1, [[3, 2], [1]], [0.5, 0.2], **changes)])
    (row,) = read_answers(path).rows
    assert (row.decoding_steps, row.accept_lengths, row.has_idxs) == ((2, 1), None, True)


@pytest.fixture
def pair(tmp_path):
    """Four rows each, in another order: 3 failed, 4 and 5 have no partner."""
    method = [
        answer(1, [[3, 3]], [1.0]),
        answer(2, [[2, 2], [2]], [1.5, 0.5], texts=["same", "another"]),
        answer(3, [[1]], [0.1], texts=["ERROR"]),
        answer(4, [[1]], [0.2]),
    ]
    vanilla = [
        answer(3, [[1]], [0.3], model_id=VANILLA_ID),
        answer(2, [[1] * 4, [1] * 2], [2.0, 2.0], texts=["same", "any"], model_id=VANILLA_ID),
        answer(1, [[1] * 6], [3.0], model_id=VANILLA_ID),
        answer(5, [[1]], [0.4], model_id=VANILLA_ID),
    ]
    return write(tmp_path / "m.jsonl", method), write(tmp_path / "v.jsonl", vanilla)


def values_of(summary):
    return {name: metric["value"] for name, metric in summary["metrics"].items()}


def test_import_by_hand(tmp_path, pair):
    imported = import_answers(*pair, ImportOptions(results_dir=tmp_path, device="a GPU"))
    summary, values = imported.summary, values_of(imported.summary)
    assert values["tau"] == pytest.approx(12 / 5)
    assert values["tau_macro"] == pytest.approx((3 + 2) / 2)
    assert values["vanilla_tau"] == 1
    assert values["speedup_spec_bench"] == pytest.approx((6 / 1 + 6 / 2) / (6 / 3 + 6 / 4))
    assert values["speedup"] == values["speedup_rate"] == pytest.approx(7 / 3)
    assert values["tokens_per_second"] == pytest.approx(12 / 3)
    assert values["vanilla_tokens_per_second"] == pytest.approx(12 / 7)
    assert (values["identical_outputs"], values["output_tokens"]) == (1, 6)
    counts = (summary["num_prompts"], summary["num_measured"], summary["num_failed"])
    assert (*counts, imported.num_excluded) == (5, 2, 1, 3)
    assert summary["failures"][0]["place"] == "m.jsonl:3"
    assert summary["differences"] == [
        {"prompt_id": "2", "repeat": 0, "turn": 1, "position": 2, "unit": "characters"}
    ]
    alone = [(f.path.name, f.line) for f in imported.findings if f.rule == "no-partner"]
    assert alone == [("m.jsonl", 4), ("v.jsonl", 4)]


def test_an_import_is_a_run_that_tables_show(tmp_path, pair, capsys):
    imported = import_answers(*pair, ImportOptions(results_dir=tmp_path))
    stored = read_run(imported.path)
    assert imported.path.parent == tmp_path / "imported" / "m-7b" / "spec_bench" / "eagle"
    assert stored.is_imported
    assert not stored.has_rows
    assert stored.env["imported"]["num_excluded"] == 3
    definitions = {metric["definition"] for metric in stored.summary["metrics"].values()}
    assert definitions == set(stored.summary["definitions"])
    plain_console().print(render(stored.summary), render_comparison([stored]))
    assert "eagle on spec_bench, m-7b (float16)" in capsys.readouterr().out
    assert import_answers(*pair, ImportOptions(results_dir=tmp_path)).path == imported.path


def test_a_relaxed_or_sampled_import(tmp_path, pair, capsys):
    options = ImportOptions(results_dir=tmp_path, is_lossless=False, temperature=0.8)
    stored = read_run(import_answers(*pair, options).path)
    summary = stored.summary
    assert summary["primary_speedup"] == "speedup_spec_bench"
    assert "identical_outputs" not in summary["metrics"]
    assert summary["differences"] == []
    plain_console().print(render(summary), render_comparison([stored]))
    assert "regret" in capsys.readouterr().out


def test_files_without_accept_lengths(tmp_path):
    changes = {"decoding_steps": None, "accept_lengths": None, "idxs": [1]}
    method = write(tmp_path / "m.jsonl", [answer(1, [[3, 2]], [0.5], **changes)])
    vanilla = write(tmp_path / "v.jsonl", [answer(1, [[1] * 5], [1.0], model_id=VANILLA_ID)])
    metrics = import_answers(method, vanilla, ImportOptions(results_dir=tmp_path)).summary[
        "metrics"
    ]
    assert metrics["tau"]["value"] == 2.5
    assert metrics["tau"]["definition"] == "tau.micro.new_tokens_per_decoding_step.as_published"


def test_the_good_one_of_several_answers_counts(tmp_path):
    rows = [
        answer(1, [[5]], [9.0]),
        answer(1, [[2, 2]], [0.5]),
        answer(1, [[2]], [1.0], texts=["ERROR"]),
    ]
    method = write(tmp_path / "m.jsonl", rows)
    vanilla = write(tmp_path / "v.jsonl", [answer(1, [[1] * 4], [1.0], model_id=VANILLA_ID)])
    summary = import_answers(method, vanilla, ImportOptions(results_dir=tmp_path)).summary
    assert summary["metrics"]["speedup"]["value"] == 2
    assert summary["num_failed"] == 0


def test_an_answer_to_fewer_turns_is_no_partner(tmp_path):
    rows = [answer(1, [[2]], [0.5]), answer(2, [[2, 2]], [0.7])]
    method = write(tmp_path / "m.jsonl", rows)
    rows = [answer(1, [[1, 1], [1]], [0.9, 0.3]), answer(2, [[1] * 4], [1.4])]
    vanilla = write(tmp_path / "v.jsonl", rows)
    options = ImportOptions(results_dir=tmp_path, model="m", method="e")
    imported = import_answers(method, vanilla, options)
    assert imported.summary["metrics"]["speedup"]["value"] == 2
    assert [(f.line, f.rule) for f in imported.findings] == [(1, "turns-mismatch")]


def test_nothing_in_common(tmp_path):
    method = write(tmp_path / "m.jsonl", [answer(1, [[2]], [0.5])])
    vanilla = write(tmp_path / "v.jsonl", [answer(2, [[2]], [0.5])])
    with pytest.raises(DatasetError, match="no question is measured both here and in"):
        import_answers(method, vanilla, ImportOptions(results_dir=tmp_path))


def import_error(capsys, *arguments):
    """What an import that is refused says."""
    try:
        code = main(["import", *map(str, arguments)])
    except SystemExit as stop:  # Of argparse.
        code = stop.code
    assert code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--max-new-tokens", "0", "must be a whole number ≥ 1, got '0'"),
        ("--temperature", "-1", "must be a number ≥ 0, got '-1'"),
        ("--temperature", "nan", "must be a number ≥ 0, got 'nan'"),
        ("--dtype", "float17", "invalid choice: 'float17'"),
        ("--method", "../x", "must be a name of letters, digits and _ . + -"),
        ("--method", "a/b", "must be a name of letters, digits and _ . + -"),
        ("--model", "a/../b", "must be a name or OWNER/NAME of letters"),
        ("--model", "/a", "must be a name or OWNER/NAME of letters"),
    ],
)
def test_import_refuses_values_of_options(tmp_path, pair, capsys, option, value, message):
    method, vanilla = pair
    folder = tmp_path / "imports"
    err = import_error(
        capsys, method, "--baseline", vanilla, "--results-dir", folder, f"{option}={value}"
    )
    assert f"argument {option}: {message}" in err
    assert not folder.exists()


def test_import_takes_a_model_with_its_owner(tmp_path, pair):
    arguments = ["import", str(pair[0]), "--baseline", str(pair[1]), "--results-dir", str(tmp_path)]
    names = ["--model", "lm-sys/m-7b_v1.3", "--method", "pld+trie", "--max-new-tokens", "6"]
    assert main([*arguments, *names]) == 0
    (path,) = (tmp_path / "imported").glob("*/spec_bench/pld+trie/*")
    facts = read_run(path).facts
    assert (facts["model"], facts["max_new_tokens"]) == ("lm-sys/m-7b_v1.3", 6)


def test_import_refuses_a_budget_that_answers_exceed(tmp_path, pair, capsys):
    method, vanilla = pair
    options = ["--results-dir", tmp_path, "--max-new-tokens", "5"]
    err = import_error(capsys, method, "--baseline", vanilla, *options)
    assert f"{method}:1: an answer has 6 new_tokens, more than --max-new-tokens 5" in err


def test_import_refuses_one_file_as_both(tmp_path, pair, capsys):
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(pair[0].read_bytes())
    for baseline in (pair[0], copy):
        err = import_error(capsys, pair[0], "--baseline", baseline)
        assert f"{pair[0]} and --baseline {baseline} are the same file" in err


def test_without_a_pair_the_faults_are_told(tmp_path, pair, capsys):
    rows = [answer(number, [[2]], [0.5], new_tokens=[0]) for number in range(4)]
    failed = write(tmp_path / "failed.jsonl", rows)
    lines = import_error(capsys, failed, "--baseline", pair[1]).splitlines()
    assert lines[0].endswith(f"no question is measured both here and in {pair[1]}:")
    assert lines[1:] == [
        f"  {failed}:{line}: error [error-row] question {line - 1} failed: new_tokens is 0"
        for line in (1, 2, 3)
    ]


QUESTIONS = "this is a question file, not answers: its rows have turns, but no choices"


def test_a_question_file_is_one_error(tmp_path, pair, capsys):
    rows = [{"question_id": number, "turns": ["why"]} for number in range(9)]
    questions = write(tmp_path / "q.jsonl", rows)
    message = f"{questions}: error [question-file] {QUESTIONS}\n"
    assert main(["lint", str(questions)]) == 1
    out = capsys.readouterr().out
    assert out == f"{message}1 file: 1 error, 0 warnings, 0 notes\n"
    assert import_error(capsys, questions, "--baseline", pair[1]) == f"error: {message}"
    assert import_error(capsys, pair[0], "--baseline", questions) == f"error: {message}"


def test_a_question_among_answers_is_a_bad_row(tmp_path):
    rows = [answer(1, [[2]], [0.5]), {"question_id": 2, "turns": ["why"]}]
    assert found(write(tmp_path / "a.jsonl", rows)) == [(2, "bad-row", "error")]


def test_no_line_is_an_object(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('[{"question_id": 1},\n{"question_id": 2}]\n\nwords')
    (finding,) = lint(path)
    assert (finding.line, finding.rule) == (1, "bad-line")
    assert "found an array: write one object per line" in finding.message


def test_lint_and_import_print_few_of_a_kind(tmp_path, capsys):
    """Seven failed questions, five shown; one row of another kind behind them."""
    rows = [answer(number, [[2]], [0.5 + number], texts=["ERROR"]) for number in range(7)]
    rows.append(answer(7, [[2]], [0.1], decoding_steps=[2]))
    path = write(tmp_path / "a.jsonl", rows)
    assert main(["lint", str(path), str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 files: 16 errors, 0 warnings, 0 notes"
    assert main(["lint", str(path)]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.partition("]")[0].removeprefix(f"{path}") for line in lines] == [
        *(f":{number}: error [error-row" for number in range(1, 6)),
        ": error [error-row", ":8: error [steps-mismatch",
    ]  # fmt: skip
    assert lines[5].endswith("... and 2 more of this kind")
    assert last == "1 file: 8 errors, 0 warnings, 0 notes"
    vanilla = write(tmp_path / "v.jsonl", [answer(7, [[1] * 2], [1.0], model_id=VANILLA_ID)])
    arguments = ["import", str(path), "--baseline", str(vanilla), "--results-dir", str(tmp_path)]
    assert main(arguments) == 0
    err = capsys.readouterr().err
    assert err.count("[error-row]") == 6
    assert "[error-row] ... and 2 more of this kind\n" in err


@needs_data
@pytest.mark.parametrize(
    ("name", "method", "tau", "speedup", "same"),
    [
        ("eagle-float16-temperature-0.0", "eagle", 3.579, 2.184, 423),
        ("sps-68m-float16-temp-0.0", "sps-68m", 2.502, 1.508, 433),
    ],
)
def test_golden_numbers(tmp_path, capsys, name, method, tau, speedup, same):
    files = [PEERS / f"vicuna-7b-v1.3-{x}.jsonl" for x in (name, "vanilla-float16-temp-0.0")]
    arguments = ["import", str(files[0]), "--baseline", str(files[1])]
    assert main([*arguments, "--results-dir", str(tmp_path)]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("all "))
    assert line.split()[1:4] == ["480", f"{tau:.3f}", f"{speedup:.3f}"]
    (path,) = (tmp_path / "imported" / "vicuna-7b-v1.3" / "spec_bench" / method).iterdir()
    values = values_of(read_run(path).summary)
    assert round(values["tau"], 3) == tau
    assert round(values["speedup_spec_bench"], 3) == speedup
    assert values["identical_outputs"] == same


def test_names_come_from_the_ids_or_the_options():
    names = parse_names("v-7b-v1.3-sps-68m-float16-temperature-0.7", "v-7b-v1.3-vanilla-float16")
    assert (names.model, names.method) == ("v-7b-v1.3", "sps-68m")
    assert (names.dtype, names.temperature) == ("float16", 0.7)
    assert parse_names("v-x-float16-temp-0.0", "v-vanilla-float16", method="y").method == "y"
    with pytest.raises(NameFault, match=r"give --model, --method, --temperature"):
        parse_names("v-7b-lade-float16", "something")


def test_tasks_cover_the_categories():
    assert [task_of(categories[0]) for categories in TASK_GROUPS.values()] == [
        "mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag",
    ]  # fmt: skip
    assert task_of("stem") == "mt_bench"
    assert task_of("my own") == "my own"


def store(path, rows, **facts):
    """A run folder with these rows."""
    facts = {"run_id": "r1", "model": "m", "dataset": "d", "method": "pld", "dtype": "float32",
             "is_greedy": True} | facts  # fmt: skip
    path.mkdir()
    (path / "requests.jsonl").write_bytes(b"".join(row.to_line() for row in rows))
    summary = summarize(rows, is_greedy=True, is_lossless=True)
    write_json(path / "summary.json", {"schema_version": SCHEMA_VERSION, "run": facts, **summary})
    env = {"schema_version": SCHEMA_VERSION, "run": facts, "sessions": []}
    write_json(path / "env.json", env)
    write_json(path / "status.json", {"state": "done"})
    return path


def round_trip(folder, tmp_path):
    """Exports both arms, checks the files, and imports them."""
    files = {arm: tmp_path / f"{arm}.jsonl" for arm in ("method", "vanilla")}
    for arm, path in files.items():
        assert main(["export", str(folder), "--arm", arm, "--output", str(path)]) == 0
        assert [finding for finding in found(path) if finding[2] != "note"] == []
    options = ImportOptions(results_dir=tmp_path / "imports")
    return import_answers(files["method"], files["vanilla"], options).summary


def test_export_by_hand_and_back(tmp_path, capsys):
    failed = make_row("7", "method", error=RequestError(type="E", message="m"))
    seven = [make_row("7", "vanilla", make_turn(vanilla_steps(1), wall_ns=9)), failed]
    folder = store(tmp_path / "run", [*two_prompts(), *seven])
    (first, second), (left_out,) = (
        export_run(read_run(folder)).rows,
        export_run(read_run(folder)).failed,
    )
    assert (first["question_id"], first["model_id"]) == ("a", "m-pld-float32-temp-0.0")
    (choice,) = first["choices"]
    assert choice["accept_lengths"] == [1, 3, 1, 2]
    assert (choice["decoding_steps"], choice["new_tokens"]) == ([4], [7])
    assert choice["wall_time"] == [500e-9]
    assert second["choices"][0]["accept_lengths"] == [1, 1, 1]
    assert len(first["answer_id"]) == 22
    assert first["answer_id"] != second["answer_id"]
    assert left_out == "7"
    values = values_of(round_trip(folder, tmp_path))
    assert "left out 1 failed questions: 7" in capsys.readouterr().err
    assert values["tau"] == pytest.approx(10 / 7)
    assert values["tau_macro"] == pytest.approx((7 / 4 + 3 / 3) / 2)
    assert values["vanilla_tau"] == 1
    assert values["speedup"] == pytest.approx(1600 / 1300)
    rates = (7 / 500 + 3 / 800) / (7 / 1000 + 3 / 600)
    assert values["speedup_spec_bench"] == pytest.approx(rates)
    assert values["identical_outputs"] == 2


@pytest.mark.parametrize(("prompt_id", "question_id"), [("12", 12), ("007", "007"), ("x1", "x1")])
def test_question_ids_are_integers_if_that_loses_nothing(tmp_path, prompt_id, question_id):
    rows = [
        make_row(prompt_id, arm, make_turn(vanilla_steps(1), wall_ns=9))
        for arm in ("vanilla", "method")
    ]
    (row,) = export_run(read_run(store(tmp_path / "run", rows))).rows
    assert row["question_id"] == question_id


def test_a_toy_run_there_and_back(tmp_path):
    folder = run(make_spec(tmp_path / "results")).path
    rows = {(row.prompt_id, row.arm): row for row in rows_of(folder)}
    summary = round_trip(folder, tmp_path)
    method = [row.turns[0] for (_, arm), row in rows.items() if arm == "method"]
    num_tokens = sum(len(turn.output_ids) for turn in method)
    num_forwards = sum(len(turn.steps) + 1 for turn in method)
    values, ours = values_of(summary), values_of(read_run(folder).summary)
    assert values["tau"] == pytest.approx(num_tokens / num_forwards)
    for name in ("speedup", "speedup_spec_bench", "tokens_per_second", "identical_outputs"):
        assert values[name] == pytest.approx(ours[name])


def test_export_refusals(tmp_path, capsys):
    folder = store(tmp_path / "run", two_prompts())
    assert main(["export", str(folder), "--repeat", "3"]) == 2
    assert "has no answers of arm 'method' in repeat 3" in capsys.readouterr().err
    assert main(["export", str(tmp_path)]) == 2
    message = "holds no run of its own: give one run folder (1 is below it)\n"
    assert capsys.readouterr().err == f"error: {tmp_path} {message}"
    (folder / "status.json").unlink()
    assert main(["export", str(folder)]) == 2
    assert f"error: {folder}: half-written" in capsys.readouterr().err
