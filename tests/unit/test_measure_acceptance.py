"""Acceptance by sibling rank: counted by hand, and from a run on the toy target."""

from __future__ import annotations

import re
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.records import Request, Turn
from benchmarks.runner import run
from benchmarks.sibling_ranks import RankCount, count_ranks, row_costs
from benchmarks.steps import Steps, StepTree
from primitives.registry import RETRIEVERS, TREE_BUILDERS
from support.runs import make_spec

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "measure_acceptance.py"

#   0 -+- 1 --- 3 -+- 5
#      +- 2        +- 6
#      +- 4        +- 7
PARENTS = (-1, 0, 0, 1, 0, 3, 3, 3)


def row(
    paths: Sequence[tuple[int, ...]], num_output: Sequence[int], arm: str = "method"
) -> Request:
    """One answer whose steps all have the tree above."""
    trees = tuple(
        StepTree(
            token_ids=tuple(range(8)), tokens=("x",) * 8, parents=PARENTS, sources=("",) * 8,
            path=path,
        )
        for path in paths
    )  # fmt: skip
    zeros, empty = (0,) * len(paths), ((),) * len(paths)
    steps = Steps(
        num_draft_nodes=zeros, num_accepted=zeros, num_output=tuple(num_output), num_strict=zeros,
        match_len=zeros, draft_depth=zeros, candidate_tokens=zeros, candidate_nodes=zeros,
        step_ns=zeros, reasons=empty, sources=empty, regrets=empty, regret_bounds=empty,
        trees=trees,
    )  # fmt: skip
    turn = Turn(
        num_prompt_tokens=1, prompt_sha="", prompt_ids=(1,), text="", finish_reason="length",
        output_ids=(0,) * (1 + sum(num_output)), wall_ns=1, phase_ns={}, steps=steps,
    )  # fmt: skip
    return Request(prompt_id="p", category="c", arm=arm, repeat=0, order=0, turns=(turn,))


def counts(*requests: Request) -> list[tuple[int, int]]:
    return [(count.num_tried, count.num_accepted) for count in count_ranks(requests)]


def test_children_are_told_apart_by_their_order() -> None:
    # Node 0 keeps its first child, 1 its only one, 3 its third: ranks 1, 1 and 3 of 3, 1 and 3.
    assert counts(row([(0, 1, 3, 7)], [4])) == [(3, 2), (2, 0), (2, 1)]
    # Node 0 keeps its second child, which has none.
    assert counts(row([(0, 2)], [2])) == [(1, 0), (1, 1), (1, 0)]
    # Nothing is kept of what node 0 offers.
    assert counts(row([(0,)], [1])) == [(1, 0)] * 3


def test_steps_add_up_and_other_arms_do_not_count() -> None:
    method = row([(0, 1, 3, 7), (0, 2)], [4, 2])
    vanilla = row([(0,)], [1], arm="vanilla")
    assert counts(method, vanilla) == [(4, 2), (3, 1), (3, 1)]


def test_where_a_path_was_cut_nobody_was_tried() -> None:
    # The output budget ended the path at 1: one token of the step is no output.
    assert counts(row([(0, 1)], [1])) == [(1, 1), (1, 0), (1, 0)]


def test_steps_without_trees_say_nothing() -> None:
    turn = row([(0, 1)], [2]).turns[0]
    steps = replace(turn.steps, trees=None)
    bare = replace(row([(0, 1)], [2]), turns=(replace(turn, steps=steps),))
    assert count_ranks([bare]) == []


def test_rate() -> None:
    assert RankCount(num_tried=8, num_accepted=2).rate == 0.25


def test_row_costs_are_interpolated_and_never_fall() -> None:
    assert row_costs({1: 10.0, 2: 9.0, 4: 14.0}, 4) == [1.0, 1.0, 1.2, 1.4]
    assert row_costs({1: 10.0, 4: 16.0}, 2) == [1.0, 1.2]


@pytest.fixture(scope="module")
def main():
    """The program."""
    return runpy.run_path(str(SCRIPT))["main"]


def test_overrides_of_a_run(tmp_path, capsys, main) -> None:
    spec = make_spec(tmp_path, num_traced_prompts=6)
    builder = TREE_BUILDERS.create("trie")
    retriever = RETRIEVERS.create("prompt_lookup", match="all")
    spec = replace(spec, method=replace(spec.method, retriever=retriever, tree_builder=builder))
    folder = run(spec).path
    assert main([str(folder), "--no-rows", "--ranks", "2"]) == 0
    told = capsys.readouterr().out
    (rates,) = re.findall(r"'tree_builder.acceptance=\[([\d.,]+)\]'\n$", told)
    first, second = map(float, rates.split(","))
    assert 0 <= second < first <= 1
    made = TREE_BUILDERS.create("sequoia", acceptance=[first, second])
    assert made.acceptance == [first, second]


def test_runs_without_trees_are_refused(tmp_path, capsys, main) -> None:
    folder = run(make_spec(tmp_path / "runs", num_traced_prompts=0)).path
    assert main([str(folder)]) == 2
    assert "recorded no draft trees: run it with num_traced_prompts=" in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
    run(make_spec(tmp_path / "runs", num_traced_prompts=1))
    assert main([str(tmp_path / "runs")]) == 2
    assert "runs holds 2 runs: name one" in capsys.readouterr().err
