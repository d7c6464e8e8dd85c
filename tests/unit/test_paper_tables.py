"""A paper's tables: where runs belong, what is computed of them, and published figures beside."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import paper_rows as rows
from benchmarks.files import RunFolderError
from benchmarks.metrics import summarize
from benchmarks.outcomes import CellOutcome, note_cells, note_outcome, note_sweep
from benchmarks.paper_lines import blocks_of, left_out, markdown_table, print_table
from benchmarks.paper_tables import TABLES, table_of_experiments
from benchmarks.published import GENERAL, PUBLISHED, published
from benchmarks.results import StoredRun
from support.report_runs import answers, write_run
from support.rows import make_row, make_turn, path, vanilla_steps

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "paper_table.py"
GATE = {"name": "soft_gated", "gamma": 0.05, "k": 3}
SENSE = {
    "retriever": {"name": "semantic"},
    "tree_builder": {"name": "loose_trie"},
    "verifier": GATE,
}
EXACT = {"name": "greedy"}
SUFFIX = {"name": "suffix_array"}


def store(source="generated", documents=84, **options):
    return {
        "num_bytes": 2_500_000, "num_tokens": 900, "num_documents": documents,
        "sources": [{"dataset": "gsm8k"}], "options": {"source": source, **options},
    }  # fmt: skip


def stored(
    method="sense",
    config=SENSE,
    wall_ns=300,
    dataset="quickstart",
    run_id=None,
    num_prompts=6,
    **stores,
):
    """A run on no disk: prompts that take vanilla 600 ns and the method `wall_ns`."""
    steps = [(3, path("em", "topk"))]
    answer = [
        row
        for n in range(num_prompts)
        for row in (
            make_row(f"p{n}", "vanilla", make_turn(vanilla_steps(3), wall_ns=600)),
            make_row(f"p{n}", "method", make_turn(steps, wall_ns=wall_ns)),
        )
    ]
    facts = {
        "run_id": run_id or f"{method}-id", "method": method, "model": "tiny", "dataset": dataset,
        "dtype": "float32", "device": "cpu", "max_new_tokens": 4, "is_lossless": False,
        "linear_kernels": None, "datastores": stores,
    }  # fmt: skip
    summary = {"run": facts, **summarize(answer, is_greedy=True, is_lossless=False)}
    env = {"sessions": [{"device_name": "a chip", "num_threads": 2}]}
    return StoredRun(path=Path("nowhere"), summary=summary, env=env, config=config)


def test_every_table_shows_all_that_is_published_of_it():
    assert {line.table for line in PUBLISHED} == set(TABLES)
    for line in PUBLISHED:
        shown = {column.name for column in TABLES[line.table].columns}
        assert set(line.values) <= shown
        assert all(value != 0 for value in line.values.values())


@pytest.mark.parametrize(
    ("table", "dataset", "num_lines"),
    [
        ("table4", "triviaqa", 3 + 3),  # With the means.
        ("table4", "quickstart", 15),
        ("table6", "gsm8k", 3 + 2),
        ("table5", "gsm8k", 4),
        ("fig7", "codealpaca", 1),
    ],
)
def test_published_lines_are_those_on_the_same_data_if_there_are_any(table, dataset, num_lines):
    lines = published(table, dataset)
    assert len(lines) == num_lines
    assert dataset == "quickstart" or {line.dataset for line in lines} <= {dataset, *GENERAL}


def test_the_mean_of_a_published_row_is_that_of_its_figures():
    """A check of the transcription: the source rounds means to two digits."""
    for row in ("SEN+ARC", "SEN+FLy", "SENSE"):
        lines = [line for line in published("table4", "") if line.row == row]
        values = {line.dataset: line.values["speedup_rate"] for line in lines}
        mean = values.pop("mean of four")
        assert sum(values.values()) / 4 == pytest.approx(mean, abs=0.006)


@pytest.mark.parametrize(
    ("place", "run", "row"),
    [
        (rows.by_method, stored(hidden_states=store()), "SENSE (ID store)"),
        (rows.by_method, stored(hidden_states=store("reference")), "SENSE (OOD store)"),
        (rows.by_method, stored("pld"), "pld"),
        (rows.by_ablation, stored(), "SENSE"),
        (rows.by_ablation, stored(config=SENSE | {"verifier": EXACT}), "without SE"),
        (rows.by_ablation, stored(config=SENSE | {"retriever": SUFFIX}), "without SEN"),
        (
            rows.by_ablation,
            stored(config=SENSE | {"retriever": SUFFIX, "verifier": EXACT}),
            "without both",
        ),
        (rows.by_ablation, stored(config=SENSE | {"tree_builder": {"name": "trie"}}), None),
        (rows.by_verifier, stored(config=SENSE | {"verifier": {"name": "fly"}}), "SEN+FLy"),
        (rows.by_verifier, stored(config=SENSE | {"verifier": {"name": "mars"}}), "SEN+mars"),
        (rows.by_verifier, stored(config=SENSE | {"retriever": SUFFIX}), None),
        (rows.by_gate, stored(), "gamma 0.05, k 3"),
        (rows.by_gate, stored(config=SENSE | {"verifier": EXACT}), None),
        (
            rows.by_gate,
            stored(config=SENSE | {"verifier": GATE | {"use_con": True, "window": 5}}),
            "gamma 0.05, k 3",
        ),
        (
            rows.by_gate,
            stored(config=SENSE | {"verifier": GATE | {"use_con": False, "max_density": 0.4}}),
            "gamma 0.05, k 3, use_con=false, max_density=0.4",
        ),
        (rows.by_store, stored(hidden_states=store()), "store of gsm8k (ID)"),
        (rows.by_store, stored(hidden_states=store("reference")), "store of gsm8k (OOD)"),
        (rows.by_store, stored(), None),
        (rows.by_size, stored(), None),
    ],
)
def test_where_a_run_belongs(place, run, row):
    assert place(run, [run]) == row


@pytest.mark.parametrize(
    ("documents", "found"),
    [
        ((21, 42, 84), ["25 % of the store", "50 % of the store", "100 % of the store"]),
        ((1868, 7473), ["25 % of the store", "100 % of the store"]),
        ((84, 84), ["84 documents", "84 documents"]),
        ((20, 84), ["20 documents", "84 documents"]),  # 23.8 %
        ((21, 30, 84), ["21 documents", "30 documents", "84 documents"]),
    ],
)
def test_the_size_of_a_store_is_a_share_of_the_largest_where_it_is_the_papers(documents, found):
    runs = [stored(hidden_states=store(documents=number)) for number in documents]
    assert [rows.by_size(run, runs) for run in runs] == found


def test_a_failed_prompt_does_not_make_a_store_its_own_whole():
    """Five measured prompts cannot be compared with six, so the run stands alone."""
    runs = [
        stored(run_id=f"s{n}", num_prompts=prompts, hidden_states=store(documents=n))
        for n, prompts in ((21, 6), (42, 5), (84, 6))
    ]
    blocks = blocks_of(TABLES["scaling"], runs)
    ours = [[x.row for x in b.lines if x.whose.startswith("ours")] for b in blocks]
    assert ours == [["25 % of the store", "100 % of the store"], ["42 documents"]]


def figures(table, runs):
    """Of ours: row -> head -> text, in the first block."""
    block = blocks_of(TABLES[table], runs)[0]
    ours = [line for line in block.lines if line.whose.startswith("ours")]
    return {line.row: dict(zip(block.heads, line.cells, strict=True)) for line in ours}


def test_the_change_to_sense_by_hand():
    """SENSE takes 300 ns of 600 ns: 2x; without SE it takes 400 ns: 1.5x, half of vanilla less."""
    exact = stored("sen_greedy", SENSE | {"verifier": EXACT}, wall_ns=400)
    found = figures("table3", [stored(), exact])
    assert found["SENSE"]["speedup (tok/s)"] == "2.00x [2.00, 2.00]"
    assert found["SENSE"]["speedup minus SENSE's"] == "-"
    assert found["without SE"]["speedup (tok/s)"] == "1.50x [1.50, 1.50]"
    assert found["without SE"]["speedup minus SENSE's"] == "-0.500"
    two = [stored(), stored(run_id="other"), exact]
    assert figures("table3", two)["without SE"]["speedup minus SENSE's"] == "-"


def test_size_and_entries_of_stores():
    found = figures("table8", [stored(hidden_states=store(num_keys=700))])
    assert found["SENSE (ID store)"]["store"] == "2.50 MB"
    assert found["SENSE (ID store)"]["entries"] == "700"
    found = figures("table8", [stored("rest", {}, tokens=store(documents=2))])
    assert found["rest"]["entries"] == "900"


def test_figures_of_rows_by_hand(tmp_path):
    """Per answer 8 candidate tokens in 4 nodes over 2 steps; of 300 ns 120 are forwards."""
    run = write_run(tmp_path, "pld", answers())
    cells = figures("fig8", [run])["pld"]
    assert cells["tokens/step"] == "4.0 [4.0, 4.0]"
    assert cells["nodes/step"] == "2.0 [2.0, 2.0]"
    assert cells["compression"] == "50.0% [50.0%, 50.0%]"
    cells = figures("fig7", [run])["pld"]
    assert cells["propose"] == "20.0% [20.0%, 20.0%]"
    assert cells["forward + verify"] == "40.0% [40.0%, 40.0%]"


def test_memory_grows_from_the_first_answer_on(tmp_path):
    peaks = [1_000_000, 1_200_000, *[3_500_000] * 10]
    grown = [
        replace(row, peak_memory_bytes=peak) for row, peak in zip(answers(), peaks, strict=True)
    ]
    run = write_run(tmp_path, "pld", grown)
    assert figures("table8", [run])["pld"]["memory growth"] == "2.50 MB"
    run.facts["device"] = "cuda:0"  # The peak of an allocator.
    assert figures("table8", [run])["pld"]["memory growth"] == "-"


def test_memory_of_each_process_grows_by_itself(tmp_path):
    peaks = [5_000_000, *[6_500_000] * 5, 1_000_000, *[3_000_000] * 5]
    grown = [
        replace(row, session=number // 6, peak_memory_bytes=peak)
        for number, (row, peak) in enumerate(zip(answers(), peaks, strict=True))
    ]
    run = write_run(tmp_path, "pld", grown)
    assert figures("table8", [run])["pld"]["memory growth"] == "2.00 MB"


def test_phases_that_are_not_exact_have_no_shares(tmp_path):
    run = write_run(tmp_path, "pld", answers())
    run.facts["has_exact_phases"] = False
    assert set(figures("fig7", [run])["pld"].values()) == {"-"}


def test_several_kinds_of_scores_have_no_common_one():
    run = stored(hidden_states=store())
    run.summary["metrics"]["score.accuracy"] = {"value": 0.75, "interval": None}
    assert figures("table6", [run])["SENSE (ID store)"]["score"] == "0.75"
    run.summary["metrics"]["score.rouge_l"] = {"value": 0.25, "interval": None}
    assert figures("table6", [run])["SENSE (ID store)"]["score"] == "-"


def test_runs_without_rows_have_no_figures_of_them():
    assert "tokens/step" not in figures("fig8", [stored("pld")])["pld"]


def test_speedups_of_other_machines_are_not_subtracted():
    run = stored("greedy", config=SENSE | {"verifier": EXACT})
    env = {"sessions": [{"device_name": "a chip", "num_threads": 8}]}
    blocks = blocks_of(TABLES["table3"], [stored(), replace(run, env=env)])
    assert [block.title.rpartition("tokens, ")[2] for block in blocks] == [
        "a chip, 2 threads",
        "a chip, 8 threads",
    ]
    ours = [line for line in blocks[1].lines if line.whose.startswith("ours")]
    change = blocks[1].heads.index("speedup minus SENSE's")
    assert [line.cells[change] for line in ours] == ["-"]


def test_lines_name_model_and_data_and_the_title_the_hardware():
    block = blocks_of(TABLES["table5"], [stored()])[0]
    assert block.title == (
        "Ours: tiny (float32, cpu) on quickstart, 6 prompts x up to 4 tokens; a chip, 2 threads"
    )
    assert [(line.row, line.whose) for line in block.lines][:2] == [
        ("gamma 0.05, k 3", "ours: tiny, quickstart"),
        ("gamma 0.05, k 3", "published: not stated, not stated (Table 5)"),
    ]
    assert len(block.lines) == 1 + 4
    assert block.lines[1].cells[block.heads.index("speedup (tok/s)")] == "2.8x"
    assert block.lines[1].cells[block.heads.index("strict tau")] == ""
    assert block.lines[0].cells[block.heads.index("score")] == "-"


def test_lines_name_what_failed_and_what_was_stopped():
    run = stored()
    run.summary["num_failed"] = 2
    run.summary["stopped"] = {"num_prompts": 6, "num_total": 48, "better": "pld"}
    block = blocks_of(TABLES["table5"], [run])[0]
    assert block.lines[0].whose == (
        "ours: tiny, quickstart; stopped at 6 of 48 prompts: slower than pld; 2 failed"
    )


@pytest.mark.parametrize(
    ("table", "head", "texts"),
    [
        ("table3", "speedup minus SENSE's", {"-0.35", "-0.32", "-0.67"}),
        ("table4", "judge's grade", {"3.44", "3.34", "3.39", ""}),
        ("table6", "relative score", {"0.9812", "0.9802", "0.937", "1.0", ""}),
        ("table8", "store", {"105 MB", "268 MB", "406 MB", "3,690 MB", ""}),
        ("table8", "entries", {"2.1 million", "16 million", "15 million", "5 million",
                               "1.7 million", ""}),
        ("table8", "memory growth", {"2.76 MB", "19.89 MB", ""}),
        ("fig8", "compression", {"73.4%"}),
    ],
)  # fmt: skip
def test_published_figures_have_their_own_digits(table, head, texts):
    block = blocks_of(TABLES[table], [stored(hidden_states=store())])[0]
    theirs = [line for line in block.lines if line.whose.startswith("published")]
    assert {line.cells[block.heads.index(head)] for line in theirs} == texts


def test_two_runs_in_one_row_are_told_apart():
    block = blocks_of(TABLES["table5"], [stored(run_id="a1"), stored(run_id="b2")])[0]
    assert [line.whose for line in block.lines][:2] == [
        "ours, run a1: tiny, quickstart",
        "ours, run b2: tiny, quickstart",
    ]


def test_other_conditions_are_another_block():
    blocks = blocks_of(TABLES["table4"], [stored(), stored(dataset="triviaqa", run_id="t")])
    assert [len(block.lines) for block in blocks] == [1 + 15, 1 + 6]


def test_runs_that_belong_nowhere_are_told():
    with pytest.raises(RunFolderError, match="none of the 1 finished runs belongs into the table"):
        blocks_of(TABLES["table5"], [stored("pld", {})])


def test_markdown_has_a_cell_for_every_column():
    text = markdown_table(TABLES["table3"], [stored()])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines[0] == (
        "|  | whose | tau | strict tau | speedup (tok/s) | speedup minus SENSE's | regret (nats) "
        "| ROUGE-L to vanilla |"
    )
    assert len({line.count("|") for line in lines}) == 1
    assert "4 x RTX 4090" in text


def test_a_printed_interval_is_on_one_line(capsys):
    print_table(TABLES["table6"], [stored(hidden_states=store())])
    printed = capsys.readouterr().out
    assert "2.00x [2.00, 2.00]" in printed
    assert "published: all, mean of all" in printed
    assert "0.9812" in printed
    assert "Brackets: 95 % intervals over prompts." in printed


@pytest.mark.parametrize(
    ("names", "table"), [([], None), (["smoke"], None), (["table4", "full"], "table4")]
)
def test_the_table_of_an_experiment(names, table):
    found = table_of_experiments(names)
    assert (found and found.name) == table


@pytest.fixture
def program():
    place = importlib.util.spec_from_file_location("paper_table", SCRIPT)
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module.main


def test_the_program_reads_a_sweep(program, tmp_path, capsys):
    run = write_run(tmp_path / "results", "pld", answers())
    note_sweep(tmp_path / "sweep", ["experiment=[fig8,full]"])
    outcome = CellOutcome(label="method=pld", code=0, path=str(run.path))
    note_outcome(tmp_path / "sweep" / "0", outcome)
    failed = CellOutcome(label="method=rest", code=2, message="no")
    note_outcome(tmp_path / "sweep" / "1", failed)
    assert program([str(tmp_path / "sweep"), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("### Figure 8: ")
    assert printed.count("| ours: m, d |") == 1
    assert "1 of 2 cells is not in this table: method=rest" in printed


def test_cells_without_a_row_are_told(tmp_path):
    """Of four cells one has a row, one another verifier, one failed, one has not ended."""
    place = {"has_row": SENSE, "has_none": SENSE | {"verifier": EXACT}}
    runs = [write_run(tmp_path, name, answers(), config=place[name]) for name in place]
    sweep = tmp_path / "sweep"
    note_sweep(sweep, ["experiment=table5"])
    labels = [f"method=sense verifier.k={k}" for k in (1, 2, 3, 4)]
    note_cells(sweep, labels)
    for number, run in enumerate(runs):
        outcome = CellOutcome(label=labels[number], code=0, path=str(run.path))
        note_outcome(sweep / str(number), outcome)
    note_outcome(sweep / "2", CellOutcome(label=labels[2], code=1, message="no"))
    assert left_out(TABLES["table5"], runs, sweep) == (
        "3 of 4 cells are not in this table: verifier.k=2; verifier.k=3; verifier.k=4"
    )


def test_a_sweep_ends_with_its_table_and_what_is_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parents[1]))
    run = write_run(tmp_path / "results", "pld", answers())
    sweep, words = tmp_path / "sweep", ["experiment=fig8"]
    note_sweep(sweep, words)
    note_outcome(sweep / "0", CellOutcome(label="method=pld", code=0, path=str(run.path)))
    print_paper_table = pytest.importorskip("run").print_paper_table
    print_paper_table(words, [run], sweep)
    assert "not in this table" not in capsys.readouterr().out
    note_cells(sweep, ["method=pld", "method=rest"])
    print_paper_table(words, [run], sweep)
    printed = capsys.readouterr().out
    assert printed.startswith("Figure 8: ")
    assert "1 of 2 cells is not in this table: method=rest" in printed


def test_the_program_reads_runs_of_a_table_that_is_named(program, tmp_path, capsys):
    write_run(tmp_path, "pld", answers())
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "status.json").write_text(json.dumps({"state": "running"}))
    assert program([str(tmp_path), "--table", "fig7"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Figure 7: ")
    assert err.startswith("left out: ")
    assert program([str(tmp_path)]) == 2
    assert "say which one, --table main | table3" in capsys.readouterr().err
    assert program([str(tmp_path / "nothing"), "--table", "fig7"]) == 2
    assert "does not exist" in capsys.readouterr().err
