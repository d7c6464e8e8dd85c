"""Loaders of published sets: rows to prompts by hand, what is wrong in them, and the real files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.datasets import DATASETS, Dataset, DatasetError, Prompt, Task

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
QUESTION = {"turns": ["A?"], "reference": ["a"]}
SHORT = Task(scorer="short_answer")


def load(folder: Path, name: str, *rows: dict[str, Any], split: str = "test", **fields) -> Dataset:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DATASETS.create(name, path=str(path), **fields).load(split)


PROMPTS: dict[str, tuple[str, dict[str, Any], Prompt]] = {
    "triviaqa_of_the_hub": (
        "triviaqa",
        {
            "question": "Who?",
            "question_id": "tc_2",
            "answer": {"value": "Sinclair Lewis", "aliases": ["Lewis\n S.", "Sinclair Lewis"]},
        },
        Prompt(
            prompt_id="tc_2",
            category="triviaqa",
            turns=("Who?\n\nAnswer with a short phrase.",),
            references=("Sinclair Lewis\nLewis S.",),
            task=SHORT,
        ),
    ),
    "triviaqa_of_a_list": (
        "triviaqa",
        {"qid": "tqa_1", "question": "Who?", "gold_answer": "PRAY", "aliases": []},
        Prompt(
            prompt_id="tqa_1",
            category="triviaqa",
            turns=("Who?\n\nAnswer with a short phrase.",),
            references=("PRAY",),
            task=SHORT,
        ),
    ),
    "nq_open": (
        "nq_open",
        {"question": "when", "answer": ["14 December 1972 UTC", "December 1972"]},
        Prompt(
            prompt_id="1",
            category="nq_open",
            turns=("when\n\nAnswer with a short phrase.",),
            references=("14 December 1972 UTC\nDecember 1972",),
            task=SHORT,
        ),
    ),
    "cnn_dm": (
        "cnn_dm",
        {"article": "News.", "highlights": "N .\nM .", "id": "4ea"},
        Prompt(
            prompt_id="4ea",
            category="cnn_dm",
            turns=("Summarize the following article.\n\nNews.",),
            references=("N .\nM .",),
            task=Task(scorer="rouge_l"),
        ),
    ),
    "ultrachat_conversation": (
        "ultrachat",
        {
            "prompt_id": "f0e",
            "messages": [
                {"role": "user", "content": "A?"},
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": "B?"},
            ],
        },
        Prompt(prompt_id="f0e", category="ultrachat", turns=("A?", "B?"), references=("a",)),
    ),
    "ultrachat_instruction": (
        "ultrachat",
        {"class": " Ability Math ", "data": "Add."},
        Prompt(prompt_id="1", category="Ability Math", turns=("Add.",)),
    ),
    "humaneval": (
        "humaneval",
        {
            "task_id": "HumanEval/3",
            "prompt": "\n\ndef f(x):\n    '''Twice.'''\n",
            "entry_point": "f",
            "canonical_solution": "    return 2 * x\n",
            "test": "def check(f):\n    assert f(1) == 2\n",
        },
        Prompt(
            prompt_id="HumanEval/3",
            category="humaneval",
            turns=(
                "Complete the following Python function. Answer with the whole function in one "
                "code block.\n\n```python\ndef f(x):\n    '''Twice.'''\n```",
            ),
            references=("    return 2 * x\n",),
            task=Task(
                scorer="humaneval",
                data={
                    "prompt": "\n\ndef f(x):\n    '''Twice.'''\n",
                    "test": "def check(f):\n    assert f(1) == 2\n",
                    "entry_point": "f",
                },
            ),
        ),
    ),
    "mbpp": (
        "mbpp",
        {
            "text": "Write a function to double.",
            "code": "def f(x):\r\n\treturn 2 * x",
            "task_id": 11,
            "test_setup_code": "y = 1\r\nz = 2",
            "test_list": ["assert f(1) == 2", "assert f(y) == z"],
            "challenge_test_list": ["assert f(9) == 18"],
        },
        Prompt(
            prompt_id="11",
            category="mbpp",
            turns=(
                "Write a function to double. Your code should pass these tests:\n\n"
                "assert f(1) == 2\nassert f(y) == z\n\nAnswer with one Python code block.",
            ),
            references=("def f(x):\n\treturn 2 * x",),
            task=Task(
                scorer="mbpp",
                data={"setup": "y = 1\nz = 2", "tests": ["assert f(1) == 2", "assert f(y) == z"]},
            ),
        ),
    ),
    "speed_bench": (
        "speed_bench",
        {"question_id": "a1", "category": "coding", "sub_category": "c", "turns": ["A?", "B?"]},
        Prompt(prompt_id="a1", category="coding", turns=("A?", "B?")),
    ),
    "mt_bench_of_the_hub": (
        "mt_bench",
        {"prompt_id": 3, "category": "math", "prompt": ["A?", "B?"], "reference": ["a", "b"]},
        Prompt(prompt_id="3", category="math", turns=("A?", "B?"), references=("a", "b")),
    ),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_a_row_becomes_a_prompt(tmp_path, case):
    name, row, prompt = PROMPTS[case]
    assert load(tmp_path, name, row).prompts == (prompt,)


def test_sanitized_mbpp(tmp_path):
    row = {
        "source_file": "x",
        "task_id": 602,
        "prompt": "Write f.",
        "code": "f = 1",
        "test_imports": ["import math", "import re"],
        "test_list": ["assert f"],
    }
    [prompt] = load(tmp_path, "mbpp", row, config="sanitized", split="train").prompts
    assert prompt.turns[0].startswith("Write f. Your code should pass these tests:\n\nassert f\n\n")
    assert prompt.task == Task(
        scorer="mbpp", data={"setup": "import math\nimport re", "tests": ["assert f"]}
    )
    with pytest.raises(DatasetError, match=r":1: .* dataset.config=full .* dataset.config=sanit"):
        load(tmp_path, "mbpp", row, split="train")
    with pytest.raises(DatasetError, match=r"rows\.jsonl: none of 1 rows is of the test split"):
        load(tmp_path, "mbpp", row, config="sanitized")


@pytest.mark.parametrize(
    ("category", "scorer"),
    [
        ("math_reasoning", "gsm8k"),
        ("summarization", "rouge_l"),
        ("translation", "rouge_l"),
        ("rag", "short_answer"),
        ("qa", None),
        ("math", None),
    ],
)
def test_spec_bench_is_scored_by_category(tmp_path, category, scorer):
    rows = [
        {"question_id": 1, "category": category, **QUESTION},
        {"question_id": 2, "category": category, "turns": ["B?"]},
        {"question_id": 3, "category": category, "turns": ["C?"], "reference": [""]},
    ]
    tasks = [prompt.task for prompt in load(tmp_path, "spec_bench", *rows).prompts]
    assert tasks == [None if scorer is None else Task(scorer=scorer), None, None]


ROW_FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "triviaqa_hidden": (
        "triviaqa",
        {"question": "Q", "question_id": "q", "answer": {"value": "", "aliases": []}},
        "'value': expected a string that is not blank, got a blank string",
    ),
    "triviaqa_none": ("triviaqa", {"question": "Q", "question_id": "q"}, "'answer': expected an"),
    "triviaqa_id": ("triviaqa", {"question": "Q", "qid": 1.5}, "'qid': expected an integer or a s"),
    "nq_open": ("nq_open", {"question": "Q", "answer": "A"}, "'answer': expected a list of one or"),
    "cnn_dm": ("cnn_dm", {"text": "News."}, "'article': expected a string .* .this row has: text."),
    "ultrachat_role": (
        "ultrachat",
        {"messages": [{"role": "system", "content": "S"}]},
        r"'messages\[0\]': expected the role 'user', got the string 'system'",
    ),
    "ultrachat_blank": (
        "ultrachat",
        {"messages": [{"role": "user", "content": ""}]},
        r"'messages\[0\]': expected a string that is not blank, got a blank string",
    ),
    "ultrachat_text": (
        "ultrachat",
        {"messages": ["Hi"]},
        r"'messages\[0\]': expected the role 'user', got null",
    ),
    "ultrachat_none": ("ultrachat", {"text": "Hi"}, "'messages': expected a list of messages"),
    "mbpp_id": ("mbpp", {"task_id": "x"}, "'task_id': expected an integer, got the string 'x'"),
    "humaneval": ("humaneval", {"prompt": "def f():"}, "'test': expected a string"),
    "mt_bench_answers": ("mt_bench", {"choices": []}, "is this a file of answers, not of quest"),
    "speed_bench": ("speed_bench", {"category": "qa", "turns": "A?"}, "'turns': expected a list"),
}


@pytest.mark.parametrize("case", ROW_FAULTS)
def test_a_bad_row_is_named_with_its_place(tmp_path, case):
    name, row, message = ROW_FAULTS[case]
    good = next(row for other, row, _ in PROMPTS.values() if other == name)
    with pytest.raises(DatasetError, match=rf"rows\.jsonl:2: .*{message}"):
        load(tmp_path, name, good, row)
    dataset = load(tmp_path, name, good, row, on_error="skip")
    assert (len(dataset.prompts), dataset.num_skipped) == (1, 1)


def test_placeholders_are_no_prompts(tmp_path):
    rows = [{"question_id": n, "category": "qa", "turns": ["FETCH"]} for n in range(3)]
    with pytest.raises(DatasetError, match=r"rows\.jsonl: expected prompts, got 'FETCH' 3 times"):
        load(tmp_path, "speed_bench", *rows)


def test_a_folder_holds_a_file_per_part(tmp_path):
    for config in ("qualitative", "throughput_1k"):
        row = {"question_id": config, "turns": [f"{config}?"]}
        (tmp_path / f"{config}.jsonl").write_text(json.dumps(row))
    loader = DATASETS.create("speed_bench", path=str(tmp_path), config="throughput_1k")
    assert loader.load("test").prompts[0].turns == ("throughput_1k?",)
    with pytest.raises(DatasetError, match=r"no file for the test split .*throughput_2k\.jsonl"):
        DATASETS.create("speed_bench", path=str(tmp_path), config="throughput_2k").load("test")
    with pytest.raises(ValueError, match=r"config .* must be .*throughput_32k, got .throughput_4k"):
        DATASETS.create("speed_bench", config="throughput_4k")


def test_shards_are_read_in_order(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").Table.from_pylist
    for shard, words in enumerate(["ab", "c"]):
        rows = [{"question": word, "answer": ["x"]} for word in words]
        parquet.write_table(table(rows), tmp_path / f"train-0000{shard}-of-00002.parquet")
    dataset = DATASETS.create("nq_open", path=str(tmp_path)).load("train")
    assert [(p.prompt_id, p.turns[0][0]) for p in dataset.prompts] == [
        ("1", "a"),
        ("2", "b"),
        ("3", "c"),
    ]


@pytest.mark.parametrize("name", ["ultrachat", "triviaqa", "cnn_dm", "nq_open"])
def test_one_file_is_the_test_split(tmp_path, name):
    row = next(row for other, row, _ in PROMPTS.values() if other == name)
    with pytest.raises(DatasetError, match="one file is the test split: train needs a folder with"):
        load(tmp_path, name, row, split="train")
    with pytest.raises(DatasetError, match=r"no file for the train split of dataset=\w+ in this"):
        DATASETS.create(name, path=str(tmp_path)).load("train")


@pytest.mark.parametrize("name", ["spec_bench", "jsonl"])
def test_what_is_not_on_the_hub_needs_a_path(name):
    with pytest.raises(DatasetError, match=rf"dataset={name} needs dataset\.path=FILE"):
        DATASETS.create(name).load("test")


# Published files beside the checkout

PUBLISHED: dict[str, tuple[str, int, dict[str, int]]] = {
    "gsm8k": ("gsm8k", 1319, {"gsm8k": 1319}),
    "codealpaca": ("code_alpaca", 101, {"rouge_l": 101}),
    "ultrachat": ("ultrachat", 385, {}),
    "triviaqa": ("qa", 150, {"short_answer": 150}),
    "spec_bench": ("spec_bench", 480, {"gsm8k": 80, "rouge_l": 160, "short_answer": 80}),
    "mt_bench": ("mt_bench", 80, {}),
    "humaneval": ("humaneval", 164, {"humaneval": 164}),
    "mbpp": ("mbpp", 500, {"mbpp": 500}),
    "cnn_dm": ("cnn_dm", 200, {}),
    "nq_open": ("qa", 3610, {"short_answer": 3610}),
}
"""Loader -> its folder, the prompts of its test split, and how many of them each scorer scores."""


@pytest.mark.skipif(
    not DATA.is_dir(), reason="the folder ../shared/data is not beside this checkout"
)
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files(name):
    folder, num_prompts, scorers = PUBLISHED[name]
    dataset = DATASETS.create(name, path=str(DATA / folder)).load("test")
    assert (len(dataset.prompts), dataset.num_skipped) == (num_prompts, 0)
    assert Counter(prompt.task.scorer for prompt in dataset.prompts if prompt.task) == scorers
    assert all(any(prompt.references) for prompt in dataset.prompts if prompt.task)


@pytest.mark.skipif(
    not DATA.is_dir(), reason="the folder ../shared/data is not beside this checkout"
)
@pytest.mark.parametrize(("split", "num_prompts"), [("train", 374), ("validation", 90)])
def test_other_splits_of_mbpp(split, num_prompts):
    dataset = DATASETS.create("mbpp", path=str(DATA / "mbpp" / "mbpp.jsonl")).load(split)
    assert len(dataset.prompts) == num_prompts
