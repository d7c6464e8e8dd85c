"""Leaderboards of run folders that were made by hand."""

from __future__ import annotations

import io
import json
import re
import runpy
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import yaml

from benchmarks.leaderboard import build_leaderboard
from benchmarks.leaderboard.columns import text_table
from benchmarks.leaderboard.latex import to_latex
from benchmarks.leaderboard.markdown import to_markdown
from benchmarks.leaderboard.page import to_html
from benchmarks.leaderboard.tasks import task_columns
from benchmarks.leaderboard.tidy import tidy_frame, to_csv
from benchmarks.metrics import summarize
from benchmarks.records import SCHEMA_VERSION, RequestError
from benchmarks.results import read_run, read_runs
from benchmarks.spec_bench.tasks import TASK_GROUPS
from support.rows import make_row, make_turn, path, vanilla_steps

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "leaderboard.py"
main = runpy.run_path(str(SCRIPT))["main"]
STEPS = [(3, path("em", "em"))]
ERROR = RequestError(type="ValueError", message="too long")
SESSION = {
    "time": "2026-01-01T00:00:00+00:00", "device_name": "Fast CPU", "num_threads": 2,
    "python": "3.11.7", "versions": {"torch": "2.13.0", "transformers": "5.24.0"},
    "git": {"commit": "0123456789abcdef", "is_dirty": True},
}  # fmt: skip


def rows_of(wall_ns, category="x", prompts=6):
    """Vanilla takes 1200 ns a prompt; `wall_ns` are the method's times, in turn."""
    times = [wall_ns] * prompts if isinstance(wall_ns, int) else list(wall_ns)
    rows = []
    for number, time in enumerate(times):
        name = f"{category}{number}"
        vanilla = make_turn(vanilla_steps(3), wall_ns=1200)
        rows.append(make_row(name, "vanilla", vanilla, category=category))
        method = make_turn(STEPS, wall_ns=time)
        rows.append(make_row(name, "method", method, category=category))
    return rows


@cache
def summary_of(wall_ns, *, is_lossless):
    return summarize(rows_of(wall_ns), is_greedy=True, is_lossless=is_lossless)


def write_run(
    root, method, wall_ns=600, *, rows=None, run_id=None, facts=(), env=(), config=(), summary=(),
    keep_rows=False,
):  # fmt: skip
    """A finished run folder; the last arguments change its files."""
    is_usual = rows is None and isinstance(wall_ns, int)
    rows = rows_of(wall_ns) if rows is None else rows
    run_id = run_id or f"id-{method}"
    run = {
        "run_id": run_id, "model": "m", "dataset": "d", "split": "test", "method": method,
        "num_prompts": 6, "is_greedy": True, "is_lossless": True, "max_new_tokens": 4,
        "device": "cpu", "dtype": "float32", "linear_kernels": None, "state": "reset",
        "history": "own", "repeats": 1, "datastores": {}, **dict(facts),
    }  # fmt: skip
    is_lossless = run["is_lossless"]
    metrics = (
        summary_of(wall_ns, is_lossless=is_lossless)
        if is_usual
        else summarize(rows, is_greedy=True, is_lossless=is_lossless)
    )
    files = {
        "status.json": {"state": "done", "num_rows": len(rows)},
        "env.json": {
            "schema_version": SCHEMA_VERSION, "run": run, "code_version": "c0de1234",
            "hashes": {"dataset": "da7a", "model": {"files": "weights"}}, "sessions": [SESSION],
        } | dict(env),
        "summary.json": {"schema_version": SCHEMA_VERSION, "run": run, "is_one_machine": True}
        | metrics | dict(summary),
    }  # fmt: skip
    folder = Path(root) / f"{method.replace('/', '-')}-{run_id}"
    folder.mkdir(parents=True)
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    options = {"method": {"name": method, "node_budget": 16}, "temperature": 0.0, "warmup": 3}
    (folder / "config.yaml").write_text(yaml.safe_dump(options | dict(config)))
    if keep_rows:
        (folder / "requests.jsonl").write_bytes(b"".join(row.to_line() for row in rows))
    return folder


def board_of(root):
    return build_leaderboard(*read_runs([root]))


def only_table(root):
    """The cells of the only board: label -> title -> text."""
    (board,) = board_of(root).boards
    table = text_table(board)
    return {
        cells[0].text: dict(zip(table.header, [cell.text for cell in cells], strict=True))
        for cells in table.lines
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"facts": {"model": "n"}},
        {"facts": {"dtype": "bfloat16"}},
        {"facts": {"linear_kernels": "prepacked"}},
        {"facts": {"max_new_tokens": 8}},
        {"facts": {"state": "carry"}},
        {"facts": {"history": "reference"}},
        {"facts": {"dataset": "e"}},
        {"facts": {"split": "train"}},
        {"facts": {"device": "cuda:0"}},
        {"facts": {"repeats": 3}},
        {"config": {"temperature": 0.7}},
        {"config": {"model": {"system_prompt": "Be brief."}}},
        {"env": {"code_version": "other"}},
        {"env": {"hashes": {"dataset": "fee1", "model": {"files": "weights"}}}},
        {"env": {"hashes": {"dataset": "da7a", "model": {"files": "others"}}}},
        {"env": {"hashes": {"dataset": "da7a", "model": {"quantization": "int8"}}}},
        {"env": {"sessions": [SESSION | {"device_name": "Slow CPU"}]}},
        {"env": {"sessions": [SESSION | {"num_threads": 1}]}},
        {"env": {"sessions": [SESSION | {"versions": {"torch": "2.12.0"}}]}},
        {"env": {"imported": {"baseline": "v.jsonl", "baseline_sha256": "ab"}}},
    ],
    ids=str,
)
def test_other_conditions_never_share_a_table(tmp_path, changes):
    write_run(tmp_path, "a")
    write_run(tmp_path, "b", **changes)
    write_run(tmp_path, "c", 500)
    labels = [
        {row.entry.label for row in board.rows} - {"vanilla"} for board in board_of(tmp_path).boards
    ]
    assert sorted(labels, key=len) == [{"b"}, {"a", "c"}]


@pytest.mark.parametrize(("is_greedy", "num_boards"), [(True, 1), (False, 2)])
def test_the_sampling_law_counts_where_it_is_used(tmp_path, is_greedy, num_boards):
    for top_p in (0.9, 1.0):
        write_run(
            tmp_path, f"p{top_p}", facts={"is_greedy": is_greedy}, config={"top_p": top_p}
        )  # fmt: skip
    assert len(board_of(tmp_path).boards) == num_boards


def test_gpus_are_counted_and_not_told_apart(tmp_path):
    for name, device in (("a", "cuda:0"), ("b", "cuda:1"), ("c", "cuda:0+cuda:1")):
        gpu = {"sessions": [SESSION | {"device_name": "GPU"}]}
        write_run(tmp_path, name, facts={"device": device}, env=gpu)
    text = to_markdown(board_of(tmp_path))
    assert "- Device: GPU\n" in text
    assert "- Device: 2 x GPU\n" in text
    assert text.count("### m") == 2


def test_imported_runs_say_what_they_were_divided_by(tmp_path):
    facts = {"device": "GPU + host", "temperature": 0.0, "max_new_tokens": None}
    imported = {"baseline": "vanilla.jsonl", "baseline_sha256": "0123456789abcdef"}
    env = {"imported": imported, "hashes": {}, "sessions": [], "code_version": None}
    (write_run(tmp_path, "eagle", facts=facts, env=env) / "config.yaml").unlink()
    text = to_markdown(board_of(tmp_path))
    assert "## GPU + host: d, 6 prompts\n" in text
    assert "- Testing environment: measured by others\n" in text
    assert "baseline vanilla.jsonl (sha256 0123456789ab)" in text
    assert "code version" not in text


def test_what_may_differ_shares_a_table(tmp_path):
    write_run(tmp_path, "a")
    write_run(
        tmp_path, "b",
        facts={"is_lossless": False},
        config={"method": {"name": "b", "node_budget": 64}, "seed": 7},
        env={"sessions": [SESSION | {"host": "elsewhere", "git": {"commit": "fed"}}]},
    )  # fmt: skip
    table = only_table(tmp_path)
    assert table["a"]["Node budget"] == "16"
    assert table["b†"]["Node budget"] == "64"


def test_tables_that_look_alike_name_what_sets_them_apart(tmp_path):
    for prompt in ("Be brief.", "Be kind."):
        model = {"system_prompt": prompt, "attn_implementation": "sdpa"}
        write_run(tmp_path, "a", run_id=prompt, config={"model": model})
    text = to_markdown(board_of(tmp_path))
    assert text.count("\n## ") == 1
    assert "### m (model.system_prompt Be brief.)" in text
    assert "### m (model.system_prompt Be kind.)" in text


def test_rows_are_sorted_by_speedup_with_vanilla_among_them(tmp_path):
    for name, wall_ns in (("half", 2400), ("three", 400), ("two", 600), ("four", 300)):
        write_run(tmp_path, name, wall_ns)
    table = only_table(tmp_path)
    assert list(table) == ["four", "three", "two", "vanilla", "half"]
    assert [line["Overall"] for line in table.values()] == [
        "4.00x", "3.00x", "2.00x", "1.00x", "0.50x",
    ]  # fmt: skip
    assert [line["Against the leader"] for line in table.values()] == [
        "leader", "lower", "lower", "", "lower",
    ]  # fmt: skip
    assert table["three"]["#Mean Accepted Tokens"] == "3.00"
    assert table["three"]["95 % interval"] == "[3.00, 3.00]"
    assert table["half"]["Against vanilla"] == "slower"
    assert table["two"]["Commit / code"] == "0123456* / c0de123"
    assert table["two"]["Prompts (failed)"] == "6 (0)"
    assert table["two"]["Quality"] == "same 6/6"


def test_medals_and_bold_go_to_the_best(tmp_path):
    for name, wall_ns in (("half", 2400), ("three", 400), ("two", 600)):
        write_run(tmp_path, name, wall_ns)
    lines = [line for line in to_markdown(board_of(tmp_path)).splitlines() if line[0:1] == "|"]
    # All have a tau of 3; a medal is not for a method that is slower than vanilla.
    assert lines[2].startswith("| 🥇 three | **3.00** | **3.00x** |")
    assert lines[3].startswith("| 🥈 two | **3.00** | 2.00x |")
    assert lines[4].startswith("| vanilla | 1.00 | 1.00x |")
    assert lines[5].startswith("| half | **3.00** | 0.50x |")
    assert len({line.count("|") for line in lines}) == 1


def test_overlapping_intervals_are_no_difference(tmp_path):
    write_run(tmp_path, "steady", 600)
    write_run(tmp_path, "shaky", [300, 1200, 300, 1200, 300, 1200])
    write_run(tmp_path, "few", rows=rows_of(700, prompts=4))
    table = only_table(tmp_path)
    # 6 x 1200 / 4500 = 1.60, with resamples on both sides of 2.
    assert table["shaky"]["Overall"] == "1.60x"
    assert table["shaky"]["Against the leader"] == "no difference"
    assert table["few"]["Against the leader"] == "unknown"
    assert table["few"]["Against vanilla"] == "too few prompts"


def test_a_relaxed_method_is_marked_and_explained(tmp_path):
    write_run(tmp_path, "exact")
    write_run(tmp_path, "loose", 300, facts={"is_lossless": False})
    assert list(only_table(tmp_path)) == ["loose†", "exact", "vanilla"]
    assert only_table(tmp_path)["loose†"]["Quality"] == "ROUGE-L 1.00, regret 0.000"
    assert "- † The output may differ" in to_markdown(board_of(tmp_path))


def test_task_scores_go_before_likeness(tmp_path):
    rows = rows_of(600)
    metrics = summarize(rows, is_greedy=True, is_lossless=False)["metrics"]
    for name, value in (("score.exact_match", 0.5), ("score_change.exact_match", -0.25)):
        metrics[name] = {"value": value, "interval": None, "num_prompts": 6, "definition": "s"}
    write_run(tmp_path, "loose", facts={"is_lossless": False}, summary={"metrics": metrics})
    quality = only_table(tmp_path)["loose†"]["Quality"]
    assert quality == "exact match 0.50 (-0.250), ROUGE-L 1.00, regret 0.000"


def test_a_failed_certificate_puts_a_lossless_method_last(tmp_path):
    failed = {"tier": "exact", "status": "failed", "badge": "exact 5/6"}
    write_run(tmp_path, "liar", 100, summary={"certificate": failed})
    write_run(tmp_path, "honest", 600, summary={"certificate": failed | {
        "status": "passed", "badge": "exact 6/6"}})  # fmt: skip
    loose = {"tier": "none", "status": "failed", "badge": "changed"}
    write_run(tmp_path, "loose", 700, facts={"is_lossless": False}, summary={"certificate": loose})
    table = only_table(tmp_path)
    assert list(table) == ["honest", "loose†", "vanilla", "liar✗"]
    assert table["liar✗"]["Certificate"] == "exact 5/6"
    assert table["liar✗"]["Against the leader"] == ""
    text = to_markdown(board_of(tmp_path))
    assert "🥇 honest | **3.00** | **2.00x**" in text
    assert "| liar✗ | 3.00 | 12.00x |" in text


def test_missing_figures_are_empty_not_zero(tmp_path):
    metrics = summarize(rows_of(600), is_greedy=True, is_lossless=True)["metrics"]
    few = {name: metrics[name] for name in ("speedup",)}
    write_run(tmp_path, "bare", summary={"metrics": few}, env={"sessions": [], "hashes": {}})
    write_run(tmp_path, "undefined", summary={"metrics": {"speedup": {
        "value": None, "definition": "s", "interval": None}}},
        env={"sessions": [], "hashes": {}})  # fmt: skip
    table = only_table(tmp_path)
    assert table["bare"]["#Mean Accepted Tokens"] == ""
    assert table["bare"]["Overall"] == "2.00x"
    assert table["undefined"]["Overall"] == ""
    assert list(table)[-1] == "undefined"
    assert "Coverage" not in table["bare"]
    assert "Certificate" not in table["bare"]
    frame = pd.read_csv(io.StringIO(to_csv(board_of(tmp_path)))).set_index("label")
    assert frame["rank"].isna().to_dict() == {"bare": False, "undefined": True}


def test_stores_and_memory_have_units(tmp_path):
    overlap = {"num_overlapping": 5, "num_dropped": 2}
    stores = {
        "tokens": {"num_bytes": 1_000_000, "report": {"overlap": overlap}},
        "hidden_states": {"num_bytes": 500_000},
    }
    write_run(tmp_path, "a", facts={"datastores": stores})
    line = only_table(tmp_path)["a"]
    assert line["Datastore"] == (
        "1.50 MB, not compared with the test data, 3 documents overlap with the test data"
    )
    assert line["Peak memory"] == "0.00 MB"  # The rows say 1000 bytes.


def test_documents_that_nobody_compared_with_test_data_are_no_zero(tmp_path):
    overlap = {"num_overlapping": 5, "num_dropped": 2}
    compared = {"tokens": {"num_bytes": 1, "report": {"overlap": overlap}}}
    write_run(tmp_path, "none", facts={"datastores": {}})
    write_run(tmp_path, "compared", facts={"datastores": compared})
    unknown = {**compared, "hidden_states": {"num_bytes": 1, "report": {"overlap": None}}}
    write_run(tmp_path, "unknown", facts={"datastores": unknown})
    frame = tidy_frame(board_of(tmp_path)).set_index("label")
    known = frame["store_overlaps"].astype(object).where(frame["store_overlaps"].notna(), None)
    assert known.to_dict() == {"none": 0, "compared": 3, "unknown": None}


def test_prompts_that_failed_are_counted_and_marked(tmp_path):
    rows = rows_of(600)
    rows[1] = replace(rows[1], turns=(), error=ERROR)
    write_run(tmp_path, "a", rows=rows)
    assert only_table(tmp_path)["a‡"]["Prompts (failed)"] == "5 (1)"
    assert "- ‡ Some prompts failed" in to_markdown(board_of(tmp_path))


def test_a_run_without_measured_prompts_is_listed(tmp_path):
    rows = [replace(row, turns=(), error=ERROR) for row in rows_of(600, prompts=2)]
    write_run(tmp_path, "broken", rows=rows)
    (item,) = board_of(tmp_path).left_out
    assert item.reason == (
        "broken: no prompt of 2 was measured; the first failed with ValueError: too long"
    )


def test_copies_and_mixed_machines_are_left_out(tmp_path):
    write_run(tmp_path / "one", "a")
    write_run(tmp_path / "two", "a", keep_rows=True)
    write_run(tmp_path, "b", summary={"is_one_machine": False})
    leaderboard = board_of(tmp_path)
    (board,) = leaderboard.boards
    assert [row.entry.run and row.entry.run.has_rows for row in board.rows] == [True, None]
    assert sorted(item.reason.partition(str(tmp_path))[0] for item in leaderboard.left_out) == [
        "a copy of ",
        "b: measured on more than one machine or with several versions",
    ]


def test_namesakes_are_told_apart(tmp_path):
    for gamma in (0.1, 0.3):
        config = {"verifier": {"gamma": gamma}, "results_dir": str(gamma)}
        write_run(tmp_path, "sense", 600, run_id=f"g{gamma}", config=config)
    write_run(tmp_path, "pld", run_id="one")
    write_run(tmp_path, "pld", 500, run_id="two")
    for number, run_id in enumerate(("three", "four")):
        many = dict.fromkeys(("a", "b", "c", "d"), number)
        write_run(tmp_path, "rest", run_id=run_id, config={"retriever": many})
    write_run(tmp_path, "vanilla", 1200)
    assert set(only_table(tmp_path)) == {
        "sense (verifier.gamma=0.1)", "sense (verifier.gamma=0.3)", "pld (one)", "pld (two)",
        "rest (three)", "rest (four)",
        "vanilla", "vanilla again",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("categories", "titles"),
    [
        (["writing", "coding", "qa"], list(TASK_GROUPS)),
        (["writing", "coding"], ["writing", "coding"]),
        (["qa", "unheard of"], ["qa", "unheard of"]),
        (["x"], []),
        ([f"c{number}" for number in range(9)], []),
    ],
)
def test_columns_of_tasks(categories, titles):
    assert list(task_columns(categories)) == titles


@pytest.mark.parametrize(("keep_rows", "shown"), [(True, "1.80x"), (False, "≈2.33x")])
def test_a_task_of_several_categories(tmp_path, keep_rows, shown):
    # writing: 4 prompts at 400 ns, 3.00x; coding: 2 prompts at 1200 ns, 1.00x.
    rows = [
        *rows_of(400, "writing", prompts=4), *rows_of(1200, "coding", prompts=2),
        *rows_of(600, "qa"),
    ]  # fmt: skip
    write_run(tmp_path, "a", rows=rows, keep_rows=keep_rows)
    line = only_table(tmp_path)["a"]
    # Sums: 6 x 1200 over 4 x 400 + 2 x 1200 = 1.80; the mean: (4 x 3 + 2 x 1) / 6 = 2.33.
    assert line["Multi-turn Conversation"] == shown
    assert line["Question Answering"] == "2.00x"
    assert line["Translation"] == ""
    assert ("≈ Mean of" in to_markdown(board_of(tmp_path))) is not keep_rows


def test_csv_has_raw_numbers_and_parses_back(tmp_path):
    write_run(tmp_path, 'a,"b"', 900, facts={"datastores": {"tokens": {"num_bytes": 7}}})
    write_run(tmp_path, "loose", 300, facts={"is_lossless": False})
    frame = pd.read_csv(io.StringIO(to_csv(board_of(tmp_path)))).set_index("method")
    assert frame.index.to_list() == ["loose", 'a,"b"']
    line = frame.loc['a,"b"']
    assert line["overall"] == pytest.approx(4 / 3)
    assert line["rank"] == 2
    assert line["store_bytes"] == 7
    assert line["setting.max_new_tokens"] == 4
    assert line["speedup_definition"] == "speedup.sum_of_times.prefill_included"
    assert pd.isna(line["regret"])
    assert frame.loc["loose", "regret"] == 0.0


def test_latex_escapes_what_users_write(tmp_path):
    write_run(tmp_path, r"50%_off & \more", facts={"is_lossless": False})
    text = to_latex(board_of(tmp_path))
    assert r"50\%\_off \& \textbackslash{}more\dag{}\textsuperscript{1st} & \textbf{3.00}" in text
    assert r"\toprule" in text
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 1
    assert r"max\_new\_tokens 4" in text
    assert "🥇" not in text


def test_html_escapes_what_users_write(tmp_path):
    write_run(tmp_path, "<script>alert(1)</script>", facts={"model": "a<b"})
    text = to_html(board_of(tmp_path))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<h3>a&lt;b</h3>" in text
    assert 'name="viewport"' in text


def test_markdown_escapes_what_users_write(tmp_path):
    write_run(tmp_path, "a|b*c\nd")
    assert r"| 🥇 a\|b\*c d | " in to_markdown(board_of(tmp_path))


@pytest.mark.parametrize("form", ["markdown", "html", "csv", "latex"])
def test_the_program_lists_unusable_folders(tmp_path, capsys, form):
    write_run(tmp_path, "a")
    (write_run(tmp_path, "cut") / "status.json").unlink()
    (write_run(tmp_path, "old") / "env.json").write_text('{"schema_version": 1}')
    assert main([str(tmp_path), "--format", form]) == 0
    out, err = capsys.readouterr()
    told = err if form in ("csv", "latex") else out
    assert "half-written: it has no status.json" in told
    assert "written by another version" in told
    assert (err == "") is (form in ("markdown", "html"))


def test_the_program_writes_a_file_and_chooses_a_dataset(tmp_path, capsys):
    write_run(tmp_path / "runs", "a")
    write_run(tmp_path / "runs", "b", facts={"dataset": "other"})
    output = tmp_path / "board.md"
    assert main([str(tmp_path / "runs"), "--dataset", "other", "--output", str(output)]) == 0
    assert capsys.readouterr().out == ""
    assert "🥇 b" in output.read_text()
    assert "🥇 a" not in output.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/nowhere"], "nowhere does not exist"),
        (["{}/cut"], "no finished run: none of the 1 run folders can be used; the first: .*cut"),
        (["{}/runs", "--dataset", "e"], "no run on --dataset e; there are runs on d"),
    ],
)
def test_the_program_says_what_is_wrong(tmp_path, capsys, arguments, message):
    write_run(tmp_path / "runs", "a")
    (write_run(tmp_path / "cut", "a") / "status.json").unlink()
    assert main([argument.format(tmp_path) for argument in arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("output", "message"),
    [("no/board.md", "board.md: there is no folder .*no$"), ("runs", "must be a file, .* folder$")],
)
def test_the_program_refuses_an_output_first(tmp_path, capsys, output, message):
    write_run(tmp_path / "runs", "a")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "runs"), "--output", str(tmp_path / output)])
    assert re.search(f"argument --output: .*{message}", capsys.readouterr().err.strip())
    assert sorted(tmp_path.rglob("*")) == before


def test_damaged_rows_leave_a_run_out(tmp_path):
    rows = [*rows_of(400, "writing"), *rows_of(600, "coding"), *rows_of(600, "qa")]
    folder = write_run(tmp_path, "a", rows=rows, keep_rows=True)
    content = (folder / "requests.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "requests.jsonl").write_bytes(b"{}\n" + b"".join(content[1:]))
    assert read_run(folder).has_rows
    leaderboard = board_of(tmp_path)
    assert leaderboard.boards == ()
    assert "requests.jsonl" in leaderboard.left_out[0].reason
