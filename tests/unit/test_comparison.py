"""Several runs in one table."""

from __future__ import annotations

from pathlib import Path

from benchmarks.comparison import (
    PHASES,
    cells,
    comparable,
    details_of,
    differing,
    markdown,
    print_comparison,
    sort_key,
    table_of,
)
from benchmarks.metrics import summarize
from benchmarks.results import StoredRun
from support.rows import make_row, make_turn, path, vanilla_steps


def summary(method: str, *, model: str = "m", is_lossless: bool = True, prompts: int = 6) -> dict:
    steps = [(3, path("em" if is_lossless else "topk", "em"), (0.0, 0.5, 0.0), (0.0, 1.0, 0.0))]
    rows = []
    for number in range(prompts):
        rows.append(make_row(f"p{number}", "vanilla", make_turn(vanilla_steps(3), wall_ns=600)))
        rows.append(
            make_row(f"p{number}", "method", make_turn(steps, wall_ns=300, propose=60, forward=240))
        )
    run = {
        "model": model, "method": method, "dataset": "d", "dtype": "float32", "device": "cpu",
        "linear_kernels": None, "max_new_tokens": 4, "is_lossless": is_lossless,
        "has_exact_phases": True,
    }  # fmt: skip
    return {"run": run, **summarize(rows, is_greedy=True, is_lossless=is_lossless)}


def run(method: str, *, env: dict | None = None, **options) -> StoredRun:
    return StoredRun(
        path=Path(method), summary=summary(method, **options), env=env or {}, config={}
    )


def session(**changes) -> dict:
    known = {"device_name": "chip", "num_threads": 2, "versions": {"torch": "2"}, "python": "3"}
    return {"sessions": [known | changes]}


def test_a_lossless_run_has_no_quality_cells():
    assert [cell for cell in cells(summary("pld")).values() if cell] == [
        "pld", "13333333.3", "3.00", "3.00", "100%", "2.00x [2.00, 2.00]", "6/6",
    ]  # fmt: skip


def test_a_relaxed_run_shows_strict_tau_regret_and_similarity():
    line = cells(summary("sense", is_lossless=False))
    assert (line["tau"], line["strict tau"]) == ("3.00", "1.00")
    assert (line["regret"], line["ROUGE-L"]) == ("0.167", "1.00")


def test_only_equal_conditions_share_a_table():
    groups = comparable([run("a"), run("b"), run("a", model="n"), run("c")])
    assert [len(runs) for _, runs in groups] == [3, 1]
    assert groups[0][0] == "m (float32, cpu) on d, 6 prompts x up to 4 tokens"


def test_markdown_begins_with_vanilla_and_has_a_line_per_run():
    text = markdown([run("a"), run("b")])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines[0].startswith("| method | tok/s | tau |")
    assert lines[2].startswith("| vanilla | 6666666.7 | 1.00 |")
    assert [line.split()[1] for line in lines[3:]] == ["a", "b"]
    assert len({line.count("|") for line in lines}) == 1


def test_markdown_keeps_a_bar_in_a_label_inside_its_cell():
    text = markdown([run("a|b")])
    (line,) = [line for line in text.splitlines() if "b |" in line]
    assert line.startswith("| a\\|b |")


def test_tables_are_printed(capsys):
    print_comparison([run("a"), run("sense", is_lossless=False)])
    printed = capsys.readouterr().out
    assert "strict tau" in printed
    assert "sense" in printed


def test_details_are_drafts_and_shares_of_time():
    heads, line = details_of([summary("a")])
    found = dict(zip(heads, line, strict=True))
    # Two of three draft nodes are accepted; forwards take 240 of 300 ns.
    assert [found[head] for head in ("tau", "coverage", "nodes/step", "node acc.", "speedup")] == [
        "3.00", "100%", "3.0", "66.7%", "2.00x",
    ]  # fmt: skip
    assert [found[phase] for phase in PHASES] == ["20.0%", "0.0%", "80.0%", "0.0%", "0.0%", "0.0%"]
    blurred = summary("a")
    blurred["run"]["has_exact_phases"] = False
    assert dict(zip(heads, details_of([blurred])[1], strict=True))["forward"] == ""


def test_numbers_are_not_broken_however_long_names_are(capsys):
    print_comparison([run("a" * 60), run("b")], has_details=True)
    printed = capsys.readouterr().out
    assert "2.00x [2.00, 2.00]" in printed
    assert "certificate" in printed
    assert "observe" in printed


def test_lossless_runs_come_first():
    runs = [summary("z", is_lossless=False), summary("b"), summary("a")]
    assert [one["run"]["method"] for one in sorted(runs, key=sort_key)][-1] == "z"


def test_columns_that_are_empty_everywhere_are_left_out():
    heads, *lines = table_of([summary("a"), summary("b")])
    assert "regret" not in heads
    assert "score (vanilla)" not in heads
    assert "regret" in table_of([summary("a"), summary("c", is_lossless=False)])[0]
    assert {len(line) for line in lines} == {len(heads)}


def test_scores_stand_beside_vanillas():
    one = summary("a")
    for name, value in (("score.pass@1", 0.25), ("vanilla_score.pass@1", 0.5)):
        one["metrics"][name] = {"value": value, "interval": None}
    assert cells(one)["score (vanilla)"] == "0.25 (0.50)"
    for name, value in (("score.rouge_l_reference", 0.1), ("vanilla_score.rouge_l_reference", 0.2)):
        one["metrics"][name] = {"value": value, "interval": None}
    expected = "pass@1 0.25 (0.50), rouge l reference 0.10 (0.20)"
    assert cells(one)["score (vanilla)"] == expected


def test_labels_of_a_sweep_are_what_differs():
    assert differing(["method=a seed=0", "method=a seed=1"]) == ["seed=0", "seed=1"]
    assert differing([]) == []


def test_runs_of_one_method_are_told_apart(capsys):
    runs = [run("a"), run("a")]
    for number, one in enumerate(runs):
        one.summary["run"]["run_id"] = f"id{number}"
    print_comparison(runs)
    printed = capsys.readouterr().out
    assert "a id0" in printed
    assert "a id1" in printed


def test_other_laws_and_other_prompts_never_share_a_table():
    warm, other = run("a"), run("a")
    warm.summary["run"]["law"] = {"temperature": 0.8}
    other.summary["run"]["dataset_hash"] = "other"
    titles = [title for title, _ in comparable([run("a"), warm, other])]
    assert len(titles) == 3
    assert titles[1].endswith("4 tokens, temperature 0.8")


def test_other_machines_never_share_a_table_and_other_code_is_told():
    runs = [
        run("a", env=session()),
        run("b", env=session(num_threads=8)),
        run("c", env=session(versions={"torch": "3"})),
        run("d", env=session(load_seconds=5.0) | {"code_version": "1"}),
        run("e", env=session(host="h") | {"code_version": "2"}),
    ]
    groups = comparable(runs)
    assert [[s["run"]["method"] for s in group] for _, group in groups] == [
        ["a", "d", "e"], ["b"], ["c"],
    ]  # fmt: skip
    name = "m (float32, cpu) on d, 6 prompts x up to 4 tokens"
    assert [title for title, _ in groups] == [
        f"{name}, chip, 2 threads, torch 2, 2 versions of the code",
        f"{name}, chip, 8 threads, torch 2",
        f"{name}, chip, 2 threads, torch 3",
    ]
    assert comparable(runs[:1])[0][0] == name


def test_what_promises_nothing_shows_how_many_answers_stayed_the_same():
    relaxed = summary("sense", is_lossless=False)
    relaxed["certificate"] = {"status": "not promised", "badge": "changes output"}
    assert cells(relaxed)["certificate"] == "changes output, 6/6 same"
    exact = summary("pld")
    exact["certificate"] = {"status": "passed", "badge": "exact 6/6"}
    assert cells(exact)["certificate"] == "exact 6/6"
