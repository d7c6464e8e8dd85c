"""GSM8K and Code Alpaca files: fields, splits, and what is wrong in a file."""

from __future__ import annotations

import gzip
import json

import pytest

from benchmarks.datasets import DATASETS, DatasetError


def test_gsm8k_takes_a_folder_or_a_file(tmp_path):
    rows = [{"question": f"What is {n}?", "answer": f"It is {n}.\n#### {n}"} for n in (1, 2)]
    for split in ("train", "test"):
        text = "\n".join(json.dumps(row) for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(text)
    loader = DATASETS.create("gsm8k", path=str(tmp_path))
    train, test = loader.load("train"), loader.load("test")
    assert train.source != test.source
    assert train.prompts[1].turns == ("What is 2?",)
    assert train.prompts[1].references == ("It is 2.\n#### 2",)
    assert train.prompts[1].prompt_id == "2"
    one = DATASETS.create("gsm8k", path=str(tmp_path / "test.jsonl"))
    assert one.load("test").content_hash == test.content_hash
    with pytest.raises(DatasetError, match="one file is the test split: train needs a folder"):
        one.load("train")


def test_gsm8k_names_line_and_field(tmp_path):
    (tmp_path / "test.jsonl").write_text('{"question": "q", "answer": "a"}\n{"question": "q"}\n')
    with pytest.raises(DatasetError, match=r"test\.jsonl:2: field 'answer': expected a string"):
        DATASETS.create("gsm8k", path=str(tmp_path)).load("test")
    skipping = DATASETS.create("gsm8k", path=str(tmp_path), on_error="skip")
    assert skipping.load("test").num_skipped == 1


def code_alpaca(tmp_path, rows):
    path = tmp_path / "code.json"
    path.write_text(json.dumps(rows, indent=2))
    return DATASETS.create("codealpaca", path=str(path))


def test_code_alpaca_splits_every_20th_row_off(tmp_path):
    rows = [{"instruction": f"do {n}", "input": "", "output": f"done {n}"} for n in range(41)]
    loader = code_alpaca(tmp_path, rows)
    test, train = loader.load("test"), loader.load("train")
    assert [prompt.prompt_id for prompt in test.prompts] == ["0", "20", "40"]
    assert len(train.prompts) == 38
    assert not {p.prompt_id for p in test.prompts} & {p.prompt_id for p in train.prompts}


def test_code_alpaca_joins_instruction_and_input(tmp_path):
    rows = [
        {"instruction": "sort", "input": "[3, 1]", "output": "[1, 3]"},
        {"instruction": "hello", "input": None, "output": " "},
    ]
    rows += [{"instruction": "x", "output": "y"}] * 19
    test = code_alpaca(tmp_path, rows).load("test")
    assert test.prompts[0].turns == ("sort\n\n[3, 1]",)
    train = code_alpaca(tmp_path, rows).load("train")
    assert train.prompts[0].turns == ("hello",)
    assert train.prompts[0].references == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", r"code\.json:1: expected a JSON list, found invalid JSON"),
        ('[{"a": 1, "a": 2}]', "expected each key once in an object"),
        ("{}", r"code\.json:1: field 'instruction': .*this row has: no fields"),
        ("[]", "expected a JSON list with items, found an empty list"),
        ('["\\ud83d"]', r"code\.json: .*found half a character"),
        ("[" * 99_999, r"code\.json: .*found one beyond the limits"),
        ("[1]", r"code\.json:0: expected a JSON object, found the number 1"),
        ('[{"instruction": 3}]', r"code\.json:0: field 'instruction': expected a string"),
    ],
)
def test_what_is_wrong_in_a_list_is_named(tmp_path, content, message):
    (tmp_path / "code.json").write_text(content)
    with pytest.raises(DatasetError, match=message):
        DATASETS.create("codealpaca", path=str(tmp_path / "code.json")).load("test")


def test_a_damaged_list_in_gzip_is_named(tmp_path):
    path = tmp_path / "code.json.gz"
    path.write_bytes(gzip.compress(json.dumps([{"instruction": "x"}] * 999).encode())[:-9])
    with pytest.raises(DatasetError, match=r"code\.json\.gz: expected a complete gzip file"):
        DATASETS.create("codealpaca", path=str(path)).load("test")


def test_layouts_of_equal_content_have_one_hash(tmp_path):
    """Blank lines apart: they count as lines, so that a name leads to its line."""
    rows = [{"instruction": f"do {n}", "input": "", "output": f"done {n}"} for n in range(21)]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "code.jsonl").write_text(lines)
    (tmp_path / "code.jsonl.gz").write_bytes(gzip.compress(f"\ufeff{lines}\r\n".encode()))
    (tmp_path / "code.json").write_text(f"\ufeff\n {json.dumps(rows)}")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "code.parquet")
    files = sorted(tmp_path.iterdir())
    hashes = [
        [
            DATASETS.create("codealpaca", path=str(file)).load(split).content_hash
            for split in ("test", "train")
        ]
        for file in files
    ]
    assert len(files) == 4
    assert hashes == [hashes[0]] * 4


def test_a_list_that_is_no_utf_8_is_named(tmp_path):
    (tmp_path / "code.json").write_bytes(b'[{"instruction": "\xff"}]')
    with pytest.raises(DatasetError, match="expected a JSON list: 'utf-8' codec"):
        DATASETS.create("codealpaca", path=str(tmp_path / "code.json")).load("test")
