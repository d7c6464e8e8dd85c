"""Reports: groups, tables, curves, trades, guards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.records import RequestError
from benchmarks.report import curves, guards
from benchmarks.report.columns import result_table
from benchmarks.report.convention_table import convention_table
from benchmarks.report.divergences import divergences, draw_tree
from benchmarks.report.groups import group_runs
from benchmarks.report.trade import Trade, is_dominated, quality_metrics, trades
from support.report_runs import TREES, answers, write_run
from support.rows import make_row, make_turn, path, vanilla_steps


def test_tokens_per_step_has_no_gaps():
    turns = {"a": [make_turn([(2, path("em", "em")), (0, path())], wall_ns=9)]}
    assert curves.tokens_per_step(turns) == {1: 0.5, 2: 0.0, 3: 0.5}
    assert curves.tokens_per_step({}) == {}


def test_phase_times_are_per_step_and_leave_the_prefill_out():
    turn = make_turn([(0, path())] * 2, wall_ns=10_000_000, prefill_ns=4_000_000, forward=4_000_000)
    times = curves.phase_times({"a": [turn]})
    assert times["forward"] == 2.0
    assert sum(times.values()) == 3.0
    assert curves.phase_times({}) == {}


def test_tau_along_counts_a_step_where_it_begins():
    # Steps begin at output positions 1, 4, 5 and 6: one in the first bin of 4, three in the second.
    steps = [(2, path("em", "em")), (0, path()), (0, path()), (1, path("em"))]
    turns = {f"p{n}": [make_turn(steps, wall_ns=9)] for n in range(5)}
    points = curves.tau_along(turns, 4)
    assert [(p.x, p.value, p.interval) for p in points] == [
        (0, 3.0, (3.0, 3.0)),
        (4, pytest.approx(4 / 3), pytest.approx((4 / 3, 4 / 3))),
    ]
    del turns["p0"]
    assert curves.tau_along(turns, 4) == []


def test_bins_are_as_wide_as_the_longest_answer_asks():
    def answer(num_tokens):
        return {"a": [make_turn(vanilla_steps(num_tokens - 1), wall_ns=9)]}

    assert curves.bin_width([answer(64)]) == 4
    assert curves.bin_width([answer(3), answer(65)]) == 8
    assert curves.bin_width([]) == 4


def test_accept_at_depth_is_in_order_of_depth():
    metric = {"value": 0.5, "interval": [0.4, 0.6]}
    metrics = {"accept@10": metric, "accept@2": metric | {"interval": None}, "tau": metric}
    points = curves.accept_at_depth(metrics)
    assert [(p.x, p.interval) for p in points] == [(2, None), (10, (0.4, 0.6))]


@pytest.mark.parametrize(
    ("speed", "quality", "expected"),
    [(1.0, 1.0, True), (2.0, 1.0, False), (1.5, 0.9, True), (3.0, 0.1, False), (2.0, 0.9, True)],
)
def test_dominated_is_who_is_beaten_in_one_and_not_better_in_the_other(speed, quality, expected):
    others = [Trade(label="o", style=0, speed=2.0, quality=1.0)]
    one = Trade(label="x", style=1, speed=speed, quality=quality)
    assert is_dominated(one, [*others, one]) is expected


def test_a_lossless_run_has_quality_1_and_a_relaxed_one_its_similarity(tmp_path):
    runs = [
        write_run(tmp_path, "exact", answers(wall_ns=400)),
        write_run(tmp_path, "loose", answers(), is_lossless=False),
    ]
    (group,) = group_runs(runs)
    assert quality_metrics(group) == ["rouge_l"]
    found = {t.label: (t.speed, t.quality, t.is_dominated) for t in trades(group, "rouge_l")}
    assert found["vanilla"] == (1.0, 1.0, True)
    assert found["exact"] == (1.5, 1.0, False)
    # "vanilla 0" and "the cat ..." share no word.
    assert found["loose"] == (2.0, 0.0, False)


def test_task_scores_come_before_similarity(tmp_path):
    run = write_run(tmp_path, "loose", answers(), is_lossless=False)
    score = {"value": 0.9, "interval": [0.8, 1.0], "num_prompts": 6}
    run.summary["metrics"]["relative_score.exact_match"] = score
    (group,) = group_runs([run])
    assert quality_metrics(group) == ["relative_score.exact_match"]
    assert trades(group, "relative_score.exact_match")[1].quality_interval == (0.8, 1.0)


def test_other_code_or_data_is_another_group_and_says_so(tmp_path):
    runs = [
        write_run(tmp_path, "a", answers()),
        write_run(tmp_path, "b", answers()),
        write_run(tmp_path / "old", "a", answers(), code="c0"),
    ]
    first, second = group_runs(runs)
    assert [entry.label for entry in first.entries] == ["a", "b"]
    assert first.title.startswith("m (float32, cpu) on d, 6 prompts x up to 8 tokens, greedy; a c")
    assert first.title.endswith("code version c1")
    assert second.title.endswith("code version c0")
    assert first.entries[0].style == second.entries[0].style == 0


def test_runs_of_one_method_are_told_apart_by_their_ids_and_copies_by_number(tmp_path):
    runs = [write_run(tmp_path / name, "a", answers()) for name in "xyz"]
    runs[2].facts["run_id"] = "0123456789"
    (group,) = group_runs(runs)
    assert [entry.label for entry in group.entries] == ["a a-id (1)", "a a-id (2)", "a 012345"]
    assert len({entry.style for entry in group.entries}) == 3


def test_a_table_drops_empty_columns_and_sorts_by_numbers(tmp_path):
    badge = {"badge": "exact 6/6"}
    runs = [
        write_run(tmp_path, "a", answers(wall_ns=400), certificate=badge),
        write_run(tmp_path, "b", answers()),
    ]
    table = result_table(group_runs(runs)[0])
    heads = [column.head for column in table.columns]
    assert "ROUGE-L" not in heads
    rows = [dict(zip(heads, row, strict=True)) for row in table.rows]
    assert [row["method"].text for row in rows] == ["vanilla", "a", "b"]
    assert [row["tau"].text for row in rows] == ["1.00", "2.00", "2.00"]
    speedup = rows[1]["speedup [95 %]"]
    assert (speedup.text, speedup.value, speedup.note) == ("1.50x [1.50, 1.50]", 1.5, "faster")
    assert [row["certificate"].text for row in rows] == ["", "exact 6/6", ""]
    assert rows[1]["same ids"].value == 1.0
    assert rows[0]["same ids"].value is None
    hints = {column.head: column.hint for column in table.columns}
    assert hints["speedup [95 %]"].startswith("Vanilla's wall time over the method's")


def test_a_relaxed_run_and_scores_have_their_columns(tmp_path):
    run = write_run(tmp_path, "loose", answers(), is_lossless=False)
    for name, value in (("score.f1", 0.5), ("vanilla_score.f1", 0.8), ("relative_score.f1", 0.625)):
        metric = {"value": value, "interval": None, "num_prompts": 6, "definition": "an id"}
        run.summary["metrics"][name] = metric
    table = result_table(group_runs([run])[0])
    vanilla, loose = (
        {column.head: cell.text for column, cell in zip(table.columns, row, strict=True)}
        for row in table.rows
    )
    assert (vanilla["f1"], loose["f1"], loose["f1 / vanilla"]) == ("0.800", "0.500", "0.62")
    assert loose["regret"] == "0.062"  # 0.25 nats in 4 step tokens.
    assert loose["strict tau"] == "1.50"  # 2 + 1 of 2 steps.


def test_conventions_stand_side_by_side(tmp_path):
    runs = [write_run(tmp_path, name, answers()) for name in ("a", "b")]
    table = convention_table(group_runs(runs)[0])
    assert table.labels == ("a", "b")
    values = {row.convention.name: row.values for row in table.rows}
    assert values["tau"] == (2.0, 2.0)


def test_endings_are_shares_of_answers(tmp_path):
    rows = answers(2)
    rows[1] = replace(rows[1], turns=(replace(rows[1].turns[0], finish_reason="eos"),))
    (group,) = group_runs([write_run(tmp_path, "a", rows)])
    found = {ending.arm: ending for ending in guards.endings(group)}
    assert found["method"].shares == {"eos": 0.5, "length": 0.5}
    assert found["vanilla"].shares == {"length": 1.0}
    assert found["method"].mean_tokens == 5.0


def test_failures_are_cards_and_their_prompts_count_nowhere(tmp_path):
    error = RequestError(type="ValueError", message="no room", place="x.py:1")
    rows = answers(3)
    rows[1] = make_row("p0", "method", error=error)
    (group,) = group_runs([write_run(tmp_path, "a", rows)])
    (card,) = guards.failures(group)
    assert card.title == "a, prompt p0, method"
    assert card.facts == (("ValueError", "no room"), ("at", "x.py:1"))
    assert list(group.entries[0].turns("vanilla")) == ["p1", "p2"]
    assert "a: 1 of 3 prompts failed" in guards.notes(group)


def test_notes_tell_of_test_data_in_a_store_and_of_differences(tmp_path):
    differences = [{"prompt_id": "p1", "repeat": 0, "turn": 0, "position": 4}]
    run = write_run(tmp_path, "a", answers(), differences=differences)
    overlap = {"num_overlapping": 3, "num_dropped": 1, "share_of_test_ngrams": 0.125}
    store = {"kind": "hidden_states", "num_documents": 84, "report": {"overlap": overlap}}
    run.facts["datastores"]["x"] = store
    run.facts["datastores"]["y"] = {"kind": "tokens", "num_documents": 1, "report": {}}
    notes = guards.notes(group_runs([run])[0])
    assert notes[1:] == [
        "a: hidden-state store of 84 documents, 2 of them overlap with test data (12.5% of the "
        "test data's n-grams)",
        "a: token store of 1 document, not compared with test data",
        "a: output differs from vanilla's on 1 of 6 prompts, though it is called lossless; "
        "earliest at output token 5 of prompt p1",
    ]


def test_a_divergence_is_drawn_with_its_tree(tmp_path):
    found = {
        "prompt_id": "p2", "repeat": 0, "arm": "method", "turn": 0, "position": 3, "gap": 0.015625,
        "spacing": 0.0078125, "context": "the cat", "vanilla_tokens": [" on", " a"],
        "tokens": [" at", " a"], "top_logits": [{"id": 1, "text": " on", "logit": 9.5}],
        "cache_len": 40, "step": 0, "tree_path": [0, 1], "tree": TREES[0].to_json(),
    }  # fmt: skip
    run = write_run(tmp_path, "a", answers(), certificate={"divergences": [found]})
    (card,) = divergences(group_runs([run])[0])
    assert card.title == "a, prompt p2, turn 1, output token 4"
    assert ("gap to the largest logit", "0.01562") in card.facts
    assert card.facts[-2:] == (("step", "1"), ("path to the node that chose it", "0 → 1"))
    assert card.logits == (("one row", (("␣on", "9.5000"),)),)
    assert (card.vanilla, card.other) == (" on a", " at a")
    assert card.tree == draw_tree(TREES[0].to_json())


def test_a_tree_is_drawn_depth_first():
    assert draw_tree(TREES[0].to_json()).splitlines() == [
        "● the",
        "   ● ␣cat  [static]",
        "      ● ␣sat  [dynamic]",
        "   ○ ␣dog  [static]",
        "      ○ ␣ran  [static]",
    ]
