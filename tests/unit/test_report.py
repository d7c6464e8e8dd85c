"""Reports: where each output token comes from, and the page as a file."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from benchmarks.datasets import DATASETS
from benchmarks.report import guards
from benchmarks.report.attribution import attribute
from benchmarks.report.groups import group_runs
from benchmarks.report.page import embed, write_report
from benchmarks.report.plots import group_plots
from benchmarks.report.prompts import prompt_turns
from benchmarks.report.token_view import TokenView, select
from benchmarks.results import Unusable
from support.report_runs import HOSTILE, answers, traced_turn, write_run
from support.rows import make_row, make_turn, path, two_prompts

ROOT = Path(__file__).resolve().parents[2]
main = runpy.run_path(str(ROOT / "scripts" / "report.py"))["main"]


def told(turn):
    return [(token.step, token.reason, token.source, token.regret) for token in attribute(turn)]


def test_a_step_outputs_its_drafted_nodes_and_the_targets_choice():
    assert told(traced_turn()) == [
        (-1, "prefill", "prefill", 0.0),
        (0, "em", "static", 0.0),
        (0, "topk", "dynamic", 0.25),
        (0, "target", "target", 0.0),
        (1, "target", "target", 0.0),
    ]


def test_a_path_that_begins_elsewhere_replaces_the_token_before():
    turn = make_turn([(0, path()), (3, ("con", "em"), (0.5, 0.0))], wall_ns=9)
    steps = replace(turn.steps, sources=(("",), ("static", "static")))
    assert told(replace(turn, steps=steps)) == [
        (-1, "prefill", "prefill", 0.0),
        (1, "con", "static", 0.5),
        (1, "em", "static", 0.0),
        (1, "target", "target", 0.0),
    ]


def test_an_answer_that_ends_within_the_path_has_no_choice_of_the_target():
    turn = make_turn([(3, path("em", "em"))], wall_ns=9, ids=(1, 2, 3))
    assert told(turn) == [
        (-1, "prefill", "prefill", 0.0),
        (0, "em", "draft", 0.0),
        (0, "em", "draft", 0.0),
    ]


def test_an_answer_without_steps_cannot_be_attributed():
    with pytest.raises(ValueError, match="only an answer with recorded steps"):
        attribute(make_turn(None, wall_ns=9, ids=(1,)))


@pytest.mark.parametrize("turn", [traced_turn(), *(r.turns[0] for r in two_prompts())])
def test_every_output_token_has_one_origin(turn):
    tokens = attribute(turn)
    assert len(tokens) == len(turn.output_ids)
    drafted = sum(token.source not in ("target", "prefill") for token in tokens)
    assert drafted == sum(turn.steps.num_accepted)


def test_the_token_view_points_into_tables_of_texts(tmp_path):
    groups = group_runs([write_run(tmp_path, "a", answers(2))])
    view = TokenView().to_json(groups)
    turn = view["runs"][0]["prompts"][0]["turns"][0]
    assert [view["texts"][n] for n in turn["words"]] == ["the", " cat", " sat", " on", HOSTILE]
    assert [view["sources"][n] for n in turn["sources"]] == [
        "prefill", "static", "dynamic", "target", "target",
    ]  # fmt: skip
    assert turn["steps"] == [-1, 0, 0, 0, 1]
    assert turn["regrets"] == {2: 0.25}
    assert turn["trees"][0]["parents"] == [-1, 0, 1, 0, 3]
    assert turn["trees"][0]["sources"][0] == -1
    assert view["texts"][turn["vanilla"]] == "vanilla 0"
    assert turn["differs"] is None
    assert turn["prompt"] is None


def test_the_first_difference_from_vanilla_is_marked(tmp_path):
    rows = answers(1)
    other = replace(rows[0].turns[0], output_ids=(0, 1, 9, 3, 4))
    rows[0] = replace(rows[0], turns=(other,))
    view = TokenView().to_json(group_runs([write_run(tmp_path, "a", rows)]))
    assert view["runs"][0]["prompts"][0]["turns"][0]["differs"] == 2


def test_traced_prompts_are_shown_first_and_the_others_are_spread():
    rows = [make_row(f"p{n}", "method", traced_turn(is_traced=n == 7)) for n in range(9)]
    assert [row.prompt_id for row in select(rows, 3)] == ["p0", "p4", "p7"]
    assert select(rows, 9) == select(rows, 20) == rows
    assert [row.prompt_id for row in select(rows, 1)] == ["p7"]


def test_a_view_of_nothing_is_refused():
    with pytest.raises(ValueError, match="max_prompts must be ≥ 1, got 0"):
        TokenView(max_prompts=0)


def test_prompt_texts_are_used_only_if_they_are_the_ones_that_were_asked(tmp_path):
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps({"question_id": "p0", "category": "x", "turns": [HOSTILE]}))
    config = {"dataset": {"name": "jsonl", "path": str(file), "split": "test"}}
    content = DATASETS.create("jsonl", path=str(file)).load("test").content_hash
    run = write_run(tmp_path, "a", answers(1), config=config, data=content)
    assert prompt_turns(run) == {"p0": (HOSTILE,)}
    changed = write_run(tmp_path, "b", answers(1), config=config, data="other")
    assert prompt_turns(changed) == {}
    file.unlink()
    assert prompt_turns(run) == {}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run = write_run(folder, "a", answers())
    half = Unusable(path=folder / "half", reason=f"half-written {HOSTILE}")
    write_report(folder / "report.html", [run], [half])
    return (folder / "report.html").read_text()


def test_embedded_texts_cannot_leave_their_element(page):
    assert json.loads(embed({"text": HOSTILE})) == {"text": HOSTILE}
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")


class Addresses(HTMLParser):
    """Whatever an element of a page points to."""

    def __init__(self, page):
        super().__init__()
        self.found = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found |= {value for name, value in attrs if name.split(":")[-1] in POINTERS}


POINTERS = ("src", "href", "action", "data", "srcset", "poster")


def test_the_page_refers_to_nothing_outside(page):
    found = Addresses(page).found
    assert {address for address in found if not address.startswith("#")} == {"data:,"}
    assert len(found) > 5
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert style
    assert "url(" not in style
    assert "@import" not in style


def test_ids_are_unique(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_figures_are_saved_too(tmp_path):
    (group,) = group_runs([write_run(tmp_path, "a", answers())])
    found = group_plots(group, 1, tmp_path / "figures", "pdf")
    assert set(found) == {"trade", "accept", "phases", "along"}
    names = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert names == [
        f"1-m-d-{name}.pdf" for name in ("along", "depth", "phases", "quality", "tokens")
    ]
    assert (tmp_path / "figures" / names[0]).read_bytes().startswith(b"%PDF")


def test_without_rows_the_summary_is_shown(tmp_path):
    run = write_run(tmp_path, "a", answers())
    (run.path / "requests.jsonl").unlink()
    (group,) = group_runs([run])
    found = group_plots(group, 1)
    assert [plot.name for plot in found["accept"]] == ["1-m-d-depth"]
    assert "along" not in found
    assert "rows were not kept" in guards.notes(group)[-1]
    assert main([str(run.path)]) == 0


def test_the_script_says_where_the_page_is(tmp_path, capsys):
    write_run(tmp_path, "a", answers())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "status.json").write_text('{"state": "failed", "reason": "no disk"}')
    assert main([str(tmp_path), "--plots", str(tmp_path / "figures")]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == str(tmp_path / "report.html")
    assert "the run failed (no disk)" in printed.err
    assert "the run failed (no disk)" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "figures" / "1-m-d-quality.png").read_bytes().startswith(b"\x89PNG")


def test_the_script_refuses_what_it_cannot_show(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
    (tmp_path / "status.json").write_text('{"state": "running"}')
    assert main([str(tmp_path)]) == 2
    assert "no finished run to show:" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--prompts", "0"])
    assert "must be a whole number ≥ 1, got '0'" in capsys.readouterr().err
