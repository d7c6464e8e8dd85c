"""Several runs in one table."""

from __future__ import annotations

from benchmarks.comparison import (
    cells,
    comparable,
    markdown,
    print_comparison,
    sort_key,
)
from benchmarks.metrics import summarize
from support.rows import make_row, make_turn, path, vanilla_steps


def summary(method: str, *, model: str = "m", is_lossless: bool = True, prompts: int = 6) -> dict:
    steps = [(3, path("em" if is_lossless else "topk", "em"), (0.0, 0.5, 0.0), (0.0, 1.0, 0.0))]
    rows = []
    for number in range(prompts):
        rows.append(make_row(f"p{number}", "vanilla", make_turn(vanilla_steps(3), wall_ns=600)))
        rows.append(make_row(f"p{number}", "method", make_turn(steps, wall_ns=300)))
    run = {
        "model": model, "method": method, "dataset": "d", "dtype": "float32", "device": "cpu",
        "linear_kernels": None, "max_new_tokens": 4, "is_lossless": is_lossless,
    }  # fmt: skip
    return {"run": run, **summarize(rows, is_greedy=True, is_lossless=is_lossless)}


def test_a_lossless_run_has_no_quality_cells():
    assert cells(summary("pld")) == [
        "pld", "13333333.3", "3.00", "3.00", "100%", "2.00x [2.00, 2.00]", "", "", "6/6",
    ]  # fmt: skip


def test_a_relaxed_run_shows_strict_tau_regret_and_similarity():
    line = cells(summary("sense", is_lossless=False))
    assert line[2:4] == ["3.00", "1.00"]
    assert line[6:8] == ["0.167", "1.00"]


def test_only_equal_conditions_share_a_table():
    groups = comparable([summary("a"), summary("b"), summary("a", model="n"), summary("c")])
    assert [len(runs) for _, runs in groups] == [3, 1]
    assert groups[0][0] == "m (float32, cpu) on d, 6 prompts x up to 4 tokens"


def test_markdown_begins_with_vanilla_and_has_a_line_per_run():
    text = markdown([summary("a"), summary("b")])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines[0].startswith("| method | tok/s | tau |")
    assert lines[2].startswith("| vanilla | 6666666.7 | 1.00 |")
    assert [line.split()[1] for line in lines[3:]] == ["a", "b"]
    assert len({line.count("|") for line in lines}) == 1


def test_tables_are_printed(capsys):
    print_comparison([summary("a"), summary("sense", is_lossless=False)])
    printed = capsys.readouterr().out
    assert "strict tau" in printed
    assert "sense" in printed


def test_lossless_runs_come_first():
    runs = [summary("z", is_lossless=False), summary("b"), summary("a")]
    assert [run["run"]["method"] for run in sorted(runs, key=sort_key)][-1] == "z"
