"""Datasets: the strict reader fault by fault, question files, the quickstart data, limits."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from benchmarks.datasets import (
    DATASETS,
    Dataset,
    DatasetError,
    Prompt,
    hash_prompts,
    limit_prompts,
)
from benchmarks.datasets.questions import read_questions
from benchmarks.datasets.reader import Faults, read_objects
from benchmarks.spec_bench.tasks import task_of

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
GOOD = b'{"question_id": 1, "turns": ["A?"]}\n'


def write(folder: Path, content: bytes, name: str = "q.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def rows_of(path: Path, faults: Faults | None = None) -> list[tuple[int, dict[str, Any]]]:
    return list(read_objects(path, faults))


def message(path: Path) -> str:
    with pytest.raises(DatasetError) as error:
        rows_of(path)
    return str(error.value)


def question_message(path: Path) -> str:
    with pytest.raises(DatasetError) as error:
        read_questions(path, Faults())
    return str(error.value)


def jsonl(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


# Reader


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.text(), JSON_VALUES, max_size=4), min_size=1, max_size=6),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\r\n", "\n \t\n"]), min_size=6),
    has_final_end=st.booleans(),
    has_bom=st.booleans(),
    is_gzipped=st.booleans(),
    ensure_ascii=st.booleans(),
)
def test_any_objects_with_any_line_ends_are_read_back(
    tmp_path_factory, rows, ends, has_final_end, has_bom, is_gzipped, ensure_ascii
):
    ends = [*ends[: len(rows) - 1], ends[-1] if has_final_end else ""]
    text, numbers = "", []
    for row, end in zip(rows, ends, strict=True):
        numbers.append(1 + len(re.findall(r"\r\n|\n|\r", text)))
        text += json.dumps(row, ensure_ascii=ensure_ascii) + end
    content = text.encode("utf-8-sig" if has_bom else "utf-8")
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_bytes(gzip.compress(content) if is_gzipped else content)

    assert rows_of(path) == list(zip(numbers, rows, strict=True))


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u001c"])
def test_separators_of_splitlines_do_not_end_a_line(tmp_path, separator):
    raw = separator if ord(separator) > 0x1F else json.dumps(separator)[1:-1]
    path = write(tmp_path, f'{{"a": "x{raw}y"}}\n'.encode())
    assert rows_of(path) == [(1, {"a": f"x{separator}y"})]


LINE_FAULTS = {
    "latin1": (b'{"a": "caf\xe9"}\n', "expected utf-8, found byte 0xe9 at byte 46 of the file"),
    "utf8_cut": (b'{"a": "caf\xc3', '(unexpected end of data), after \'{"a": "caf\''),
    "nul_tail": (b"\0\0\0", "expected JSON, found a NUL byte at byte 36 of the file"),
    "nul_inside": (b'{"a": "x\0y"}\n', "found a NUL byte at byte 44 of the file"),
    "cut_in_string": (b'{"a": "x', "at column 7 (Unterminated string starting at)"),
    "cut_in_object": (b'{"a": {"b": 1}', "; the last line is cut off"),
    "missing_comma": (b'{"a": 1 "b": 2}', "column 9 (Expecting ',' delimiter) near '{\"a\": 1 "),
    "two_objects": (b'{"a": 1}{"a": 2}\n', "invalid JSON at column 9 (Extra data)"),
    "pretty_printed": (b'{\n"a": 1}\n', "an object must stand on one line"),
    "array": (b'[{"a": 1},\n', "found an array: write one object per line"),
    "number": (b"17\n", "expected a JSON object, found the number 17"),
    "string": (b'"x"\n', "expected a JSON object, found the string 'x'"),
    "null": (b"null\n", "expected a JSON object, found null"),
    "text": (b"Name a river.\n", "found invalid JSON at column 1 (Expecting value)"),
    "duplicate_key": (b'{"a": 1, "a": 2}\n', "expected each key once in an object, found 'a'"),
    "duplicate_inside": (b'{"o": [{"b": 1, "b": 1}]}\n', "found 'b' twice"),
    "too_deep": (b'{"a":' * 100_000, "found one beyond the limits"),
    "too_long": (b'{"a": ' + b"7" * 5000 + b"}\n", "found one beyond the limits"),
    "half_character": (b'{"a": "\\uD83D"}\n', "found half a character: \\ud83d"),
    "bom_inside": (b'\xef\xbb\xbf{"a": 1}\n', "Unexpected UTF-8 BOM"),
}


@pytest.mark.parametrize("name", LINE_FAULTS)
def test_a_bad_line_is_named_with_its_place(tmp_path, name):
    content, expected = LINE_FAULTS[name]
    path = write(tmp_path, GOOD + content)
    text = message(path)
    assert text.startswith(f"{path}:2: ")
    assert expected in text
    assert len(text) < len(str(path)) + 250


@pytest.mark.parametrize("name", LINE_FAULTS)
def test_a_bad_line_can_be_skipped(tmp_path, name):
    path = write(tmp_path, GOOD + LINE_FAULTS[name][0].rstrip(b"\n") + b"\n" + GOOD)
    faults = Faults(on_error="skip")
    lines = [line for line, _ in rows_of(path, faults)]
    num_lines = path.read_bytes().count(b"\n")
    assert lines == [1, num_lines]
    assert [str(fault).split(": ")[0] for fault in faults.found] == [
        f"{path}:{line}" for line in range(2, num_lines)
    ]


def test_only_an_unterminated_line_is_called_cut_off(tmp_path):
    assert "cut off" in message(write(tmp_path, b'{"a": "x'))
    assert "cut off" not in message(write(tmp_path, b'{"a": "x\n'))
    assert "cut off" not in message(write(tmp_path, b'{"a" 1}'))


FILE_FAULTS = {
    "empty": (b"", ": no rows"),
    "blank": (b"\n \r\n\t\n", ": no rows"),
    "only_bom": (b"\xef\xbb\xbf\n", ": no rows"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "git lfs pull"),
    "utf16": (GOOD.decode().encode("utf-16"), ":1: expected utf-8, found UTF-16"),
    "gzip_cut": (gzip.compress(GOOD * 99)[:-9], ": expected a complete gzip file, found damaged"),
}


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("name", FILE_FAULTS)
def test_a_bad_file_always_stops(tmp_path, name, on_error):
    content, expected = FILE_FAULTS[name]
    path = write(tmp_path, content)
    with pytest.raises(DatasetError, match=re.escape(expected)) as error:
        rows_of(path, Faults(on_error=on_error))
    assert str(error.value).startswith(f"{path}:")


def test_missing_file_and_folder(tmp_path):
    assert message(tmp_path / "no.jsonl").startswith(f"{tmp_path / 'no.jsonl'}: no such file")
    assert message(tmp_path) == f"{tmp_path}: expected a file, found a folder"


def test_nan_is_read(tmp_path):
    [(_, row)] = rows_of(write(tmp_path, b'{"wall_time": NaN}'))
    assert row["wall_time"] != row["wall_time"]


def test_on_error_is_checked():
    with pytest.raises(ValueError, match="on_error must be 'stop' or 'skip', got 'ignore'"):
        Faults(on_error="ignore")  # type: ignore[arg-type]


# Question files


def test_question_fields(tmp_path):
    path = write(
        tmp_path,
        jsonl(
            {"question_id": 7, "category": "qa", "turns": ["A?"], "reference": ["a"], "x": 1},
            {"question_id": "b-8", "turns": ["B?", "C?"], "reference": "b"},
            {"question_id": 9, "category": None, "turns": ["D?"], "reference": [["d", "e"]]},
            {"question_id": 10, "turns": ["F?", "G?"], "reference": ["", "g"]},
        ),
    )
    assert read_questions(path, Faults()) == (
        Prompt(prompt_id="7", category="qa", turns=("A?",), references=("a",)),
        Prompt(prompt_id="b-8", category="default", turns=("B?", "C?"), references=("b",)),
        Prompt(prompt_id="9", category="default", turns=("D?",), references=("d\ne",)),
        Prompt(prompt_id="10", category="default", turns=("F?", "G?"), references=("", "g")),
    )


def test_without_ids_the_line_numbers_are_the_ids(tmp_path):
    path = write(tmp_path, b'{"turns": ["A?"]}\n\n{"turns": ["B?"]}\n')
    assert [prompt.prompt_id for prompt in read_questions(path, Faults())] == ["1", "3"]


ROW_FAULTS = {
    "string_turns": ({"turns": "A?"}, "'turns': expected a list of one or more strings"),
    "empty_turns": ({"turns": []}, "that are not blank, got an empty list"),
    "blank_turn": ({"turns": ["A?", " "]}, "that are not blank, got a blank string as item 2"),
    "number_turn": ({"turns": [3]}, "that are not blank, got the number 3 as item 1"),
    "null_turns": ({"turns": None}, "that are not blank, got null"),
    "no_turns": ({"prompt": "A?"}, "got nothing (this row has: question_id, prompt)"),
    "answers": ({"choices": []}, "is this a file of answers, not of questions?"),
    "bool_id": ({"turns": ["A?"], "question_id": True}, "'question_id': expected an integer or"),
    "float_id": (
        {"turns": ["A?"], "question_id": 2.5},
        "an integer or a string, got the number 2.5",
    ),
    "blank_id": (
        {"turns": ["A?"], "question_id": ""},
        "an integer or a string, got a blank string",
    ),
    "null_id": ({"turns": ["A?"], "question_id": None}, "(as in line 1), got null"),
    "same_id": ({"turns": ["B?"], "question_id": "1"}, "got '1', which line 1 has already"),
    "category": ({"turns": ["A?"], "category": 4}, "'category': expected a string that is not"),
    "references": ({"turns": ["A?"], "reference": ["a", "b"]}, "per turn (1; several answers"),
    "reference": ({"turns": ["A?"], "reference": {"a": 1}}, "got an object"),
    "reference_item": ({"turns": ["A?"], "reference": [3]}, "lists of strings, got the number 3"),
}


@pytest.mark.parametrize("name", ROW_FAULTS)
def test_a_bad_row_is_named_with_its_place(tmp_path, name):
    row, expected = ROW_FAULTS[name]
    path = write(tmp_path, GOOD + jsonl({"question_id": 2, **row}))
    text = question_message(path)
    assert text.startswith(f"{path}:2: ")
    assert expected in text

    faults = Faults(on_error="skip")
    assert len(read_questions(path, faults)) == 1
    assert [str(fault) for fault in faults.found] == [text]


def test_an_id_in_some_rows_only_is_a_fault(tmp_path):
    path = write(tmp_path, b'{"turns": ["A?"]}\n' + GOOD)
    assert question_message(path).startswith(f"{path}:1: field 'question_id': expected an integer")
    assert "(as in line 2), got nothing (this row has: turns)" in question_message(path)


def test_without_a_usable_row_skip_stops(tmp_path):
    path = write(tmp_path, b"x\n" + jsonl({"turns": []}))
    with pytest.raises(DatasetError, match=r"\(no row is usable, 2 are bad\)$") as error:
        read_questions(path, Faults(on_error="skip"))
    assert str(error.value).startswith(f"{path}:1: expected a JSON object")


# Loaders


def test_jsonl_loader_counts_what_it_skips(tmp_path, monkeypatch):
    write(tmp_path, GOOD + b"x\n")
    monkeypatch.chdir(tmp_path)
    dataset = DATASETS.create("jsonl", path="q.jsonl", on_error="skip").load("test")
    assert (dataset.name, dataset.split, dataset.source) == ("jsonl", "test", "q.jsonl")
    assert (len(dataset.prompts), dataset.num_skipped) == (1, 1)
    assert dataset.skipped[0].startswith("q.jsonl:2: ")


def test_jsonl_loader_reads_gzip(tmp_path):
    path = write(tmp_path, gzip.compress(GOOD), "q.jsonl.gz")
    assert len(DATASETS.create("jsonl", path=str(path)).load("test").prompts) == 1


def test_jsonl_loader_says_what_it_needs(tmp_path):
    with pytest.raises(DatasetError, match=r"^dataset=jsonl needs dataset\.path=FILE$"):
        DATASETS.create("jsonl").load("test")
    with pytest.raises(ValueError, match=r"on_error .* must be stop \| skip, got .no."):
        DATASETS.create("jsonl", on_error="no")
    loader = DATASETS.create("jsonl", path=str(write(tmp_path, GOOD)))
    with pytest.raises(DatasetError, match="split of dataset=jsonl must be test, got 'train'"):
        loader.load("train")


def test_quickstart_has_two_splits():
    loader = DATASETS.create("quickstart")
    with pytest.raises(DatasetError, match="must be test or train, got 'dev'"):
        loader.load("dev")


@pytest.mark.parametrize("name", ["quickstart", "jsonl"])
def test_yaml_mirrors_the_fields(name):
    path = ROOT / "configs" / "dataset" / f"{name}.yaml"
    config = OmegaConf.to_container(OmegaConf.load(path))
    fields = {field.name: field.default for field in dataclasses.fields(DATASETS.get(name))}
    assert config == {"name": name, "split": "test", **fields}
    assert path.read_text().startswith(f"# python run.py method=pld dataset={name}")


# The quickstart data


KINDS = ["multi_turn", "translation", "summarization", "qa", "math_reasoning", "rag"]


def quickstart(split: str) -> Dataset:
    return DATASETS.create("quickstart").load(split)


def texts(dataset: Dataset) -> list[str]:
    return [text for prompt in dataset.prompts for text in (*prompt.turns, *prompt.references)]


def ngrams(text: str, n: int) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


@pytest.mark.parametrize(("split", "per_kind", "first_id"), [("test", 4, 1), ("train", 12, 1001)])
def test_quickstart_rows(split, per_kind, first_id):
    prompts = quickstart(split).prompts
    ids = [prompt.prompt_id for prompt in prompts]
    assert ids == [str(first_id + i) for i in range(6 * per_kind)]
    assert Counter(prompt.category for prompt in prompts) == dict.fromkeys(KINDS, per_kind)
    for prompt in prompts:
        assert len(prompt.turns) == (2 if prompt.category == "multi_turn" else 1)
        assert len(prompt.references) == len(prompt.turns)
        assert all(reference.strip() for reference in prompt.references)
        assert all(len(turn.split()) <= 350 for turn in prompt.turns)


@pytest.mark.parametrize("split", ["test", "train"])
def test_quickstart_files_are_plain(split):
    content = (ROOT / "benchmarks/datasets/quickstart" / f"{split}.jsonl").read_bytes()
    assert len(content) < 200_000
    assert content.endswith(b"}\n")
    assert b"\r" not in content
    assert b"\\u" not in content
    for line in content.decode().splitlines():
        assert list(json.loads(line)) == ["question_id", "category", "turns", "reference"]


def test_quickstart_splits_share_no_13_gram():
    test, train = (
        {gram for text in texts(quickstart(split)) for gram in ngrams(text, 13)}
        for split in ("test", "train")
    )
    assert len(test) > 1000
    assert not test & train


@pytest.mark.parametrize("split", ["test", "train"])
def test_quickstart_arithmetic_is_right(split):
    operations = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }
    for prompt in quickstart(split).prompts:
        if prompt.category != "math_reasoning":
            continue
        lines = prompt.references[0].splitlines()
        equations = re.findall(r"(\d+(?: [-+*/] \d+)+) = (\d+)", prompt.references[0])
        for left, right in equations:
            first, *rest = left.split()
            value = float(first)
            for sign, number in zip(rest[::2], rest[1::2], strict=True):
                value = operations[sign](value, float(number))
            assert value == float(right), (prompt.prompt_id, left, right)
        assert lines[-1] == f"#### {equations[-1][1]}"


@pytest.mark.parametrize("split", ["test", "train"])
def test_quickstart_articles_have_120_to_220_words(split):
    for prompt in quickstart(split).prompts:
        if prompt.category == "summarization":
            article, _, instruction = prompt.turns[0].rpartition("\n\n")
            assert 120 <= len(article.split()) <= 220, prompt.prompt_id
            assert len(prompt.references[0].split()) < len(article.split()) / 2
            assert "ummar" in instruction


# Prompts, hashes, limits


def prompt(prompt_id: str, category: str = "a") -> Prompt:
    return Prompt(prompt_id=prompt_id, category=category, turns=(f"{prompt_id}?",))


def dataset_of(*prompts: Prompt) -> Dataset:
    return Dataset.from_prompts(prompts, name="toy", split="test", source="memory")


def kept_ids(dataset: Dataset) -> list[str]:
    return [prompt.prompt_id for prompt in dataset.prompts]


def test_prompts_and_datasets_check_themselves():
    with pytest.raises(ValueError, match="turns must be one or more texts that are not blank"):
        Prompt(prompt_id="1", category="a", turns=())
    with pytest.raises(ValueError, match=r"at most one per turn \(1\), got 2"):
        Prompt(prompt_id="1", category="a", turns=("A?",), references=("a", "b"))
    with pytest.raises(ValueError, match="prompt_id must not be blank"):
        prompt("")
    with pytest.raises(ValueError, match="must not be empty"):
        dataset_of()
    with pytest.raises(ValueError, match="must be distinct"):
        dataset_of(prompt("1"), prompt("1"))


def test_hash_depends_on_content_only(tmp_path):
    base = prompt("1")
    hashes = [hash_prompts([base])] + [
        hash_prompts([dataclasses.replace(base, **change)])
        for change in (
            {"prompt_id": "2"},
            {"category": "b"},
            {"turns": ("1?", "2?")},
            {"references": ("r",)},
        )
    ]
    assert len(set(hashes)) == 5
    canonical = b'[{"category":"a","prompt_id":"1","references":[],"turns":["1?"]}]'
    assert hashes[0] == hashlib.sha256(canonical).hexdigest()[:16]

    one = DATASETS.create("jsonl", path=str(write(tmp_path, GOOD, "one.jsonl"))).load("test")
    content = b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n\r\n")
    two = DATASETS.create("jsonl", path=str(write(tmp_path, content, "two.jsonl"))).load("test")
    assert one.content_hash == two.content_hash


UNEVEN = dataset_of(
    *(prompt(f"a{i}", "a") for i in range(5)),
    prompt("b0", "b"),
    *(prompt(f"c{i}", "c") for i in range(3)),
)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, ["a0"]),
        (2, ["a0", "b0"]),
        (3, ["a0", "b0", "c0"]),
        (5, ["a0", "a1", "b0", "c0", "c1"]),
        (8, ["a0", "a1", "a2", "a3", "b0", "c0", "c1", "c2"]),
    ],
)
def test_limit_goes_round_the_categories_and_keeps_file_order(limit, expected):
    subset = limit_prompts(UNEVEN, limit)
    assert kept_ids(subset) == expected
    assert subset.content_hash == hash_prompts(subset.prompts) != UNEVEN.content_hash


@pytest.mark.parametrize("limit", [None, 9, 100])
def test_a_limit_that_leaves_nothing_out(limit):
    assert limit_prompts(UNEVEN, limit, seed=3) is UNEVEN


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_below_one(limit):
    with pytest.raises(ValueError, match=f"limit must be ≥ 1 or null, got {limit}"):
        limit_prompts(UNEVEN, limit)


@given(
    categories=st.lists(st.sampled_from("abcd"), min_size=1, max_size=20),
    limit=st.integers(1, 20),
    seed=st.none() | st.integers(0, 3),
)
def test_any_limit_takes_evenly_and_grows(categories, limit, seed):
    dataset = dataset_of(*(prompt(str(i), category) for i, category in enumerate(categories)))
    kept = kept_ids(limit_prompts(dataset, limit, seed))
    assert kept == sorted(kept, key=int)
    assert len(kept) == min(limit, len(categories))
    assert set(kept) <= set(kept_ids(limit_prompts(dataset, limit + 1, seed)))

    counts = Counter(categories[int(prompt_id)] for prompt_id in kept)
    most = max(counts.values())
    for category, there in Counter(categories).items():
        assert min(there, most - 1) <= counts[category] <= min(there, most)


def test_seed_shuffles_within_categories():
    train = quickstart("train")
    subsets = {tuple(kept_ids(limit_prompts(train, 12, seed=seed))) for seed in range(20)}
    assert len(subsets) == 20
    for ids in subsets:
        kept = [prompt for prompt in train.prompts if prompt.prompt_id in ids]
        assert Counter(prompt.category for prompt in kept) == dict.fromkeys(KINDS, 2)
        assert [prompt.prompt_id for prompt in kept] == list(ids)
    assert limit_prompts(train, 12, seed=7) == limit_prompts(train, 12, seed=7)
    assert set(kept_ids(limit_prompts(train, 12, 7))) < set(kept_ids(limit_prompts(train, 13, 7)))


# Published and malformed files beside the checkout


ANSWERS = ":1: field 'turns': .*is this a file of answers, not of questions"
DIRTY: dict[str, int | str] = {
    "answers_error_rows.jsonl": ANSWERS,
    "answers_misspelt_key.jsonl": ANSWERS,
    "answers_rerun_appended.jsonl": ANSWERS,
    "answers_steps_mismatch.jsonl": ANSWERS,
    "array_not_lines.jsonl": ":1: expected a JSON object, found an array",
    "blank_lines.jsonl": 3,
    "bom.jsonl": 3,
    "crlf.jsonl": 3,
    "duplicate_ids.jsonl": ":3: expected a new id, got '1', which line 1 has already",
    "empty.jsonl": ": no rows",
    "empty_turns.jsonl": ":2: field 'turns': .*got an empty list",
    "latin1.jsonl": ":1: expected utf-8, found byte 0xe9 at byte 51 ",
    "lfs_pointer.jsonl": ":1: expected JSON lines, found a git-LFS pointer: .*git lfs pull",
    "missing_turns.jsonl": r":2: field 'turns': .*got nothing \(this row has: question_id",
    "no_final_newline.jsonl": 3,
    "no_ids.jsonl": 3,
    "nul_tail.jsonl": ":3: expected JSON, found a NUL byte at byte 184 ",
    "string_turns.jsonl": ":1: field 'turns': .*got the string 'a string, not a list'",
    "truncated_last.jsonl": ":3: .*invalid JSON at column 48 .*the last line is cut off",
    "u2028.jsonl": 2,
}

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the folder ../shared/data is not beside this checkout"
)


@needs_data
def test_every_dirty_file_has_an_expected_outcome():
    assert {path.name for path in (DATA / "dirty").iterdir()} == set(DIRTY)


@needs_data
@pytest.mark.parametrize("loader", ["jsonl", "spec_bench"])
@pytest.mark.parametrize("name", DIRTY)
def test_dirty_files(name, loader):
    path, expected = DATA / "dirty" / name, DIRTY[name]
    load = DATASETS.create(loader, path=str(path)).load
    if isinstance(expected, int):
        assert len(load("test").prompts) == expected
    else:
        with pytest.raises(DatasetError) as error:
            load("test")
        assert re.match(re.escape(str(path)) + expected, str(error.value))


@needs_data
def test_u2028_stays_inside_its_prompt():
    prompts = read_questions(DATA / "dirty" / "u2028.jsonl", Faults())
    assert prompts[1].turns == ("First line\u2028second line of one prompt",)


@needs_data
@pytest.mark.parametrize(
    ("name", "num_prompts", "num_categories", "num_with_reference"),
    [("spec_bench", 480, 13, 359), ("mt_bench", 80, 8, 39)],
)
def test_published_files(name, num_prompts, num_categories, num_with_reference):
    loader = DATASETS.create("jsonl", path=str(DATA / name / "question.jsonl"))
    dataset = loader.load("test")
    assert len(dataset.prompts) == num_prompts
    assert sum(bool(prompt.references) for prompt in dataset.prompts) == num_with_reference
    categories = list(dict.fromkeys(prompt.category for prompt in dataset.prompts))
    assert len(categories) == num_categories
    tasks = list(dict.fromkeys(map(task_of, categories)))
    subset = limit_prompts(dataset, 2 * len(tasks))
    drawn = [task_of(prompt.category) for prompt in subset.prompts]
    assert {task: drawn.count(task) for task in tasks} == dict.fromkeys(tasks, 2)
    everywhere = limit_prompts(dataset, 8 * len(tasks))
    assert {prompt.category for prompt in everywhere.prompts} == set(categories)


@needs_data
def test_the_published_gzip_file_is_read():
    rows = rows_of(DATA / "humaneval" / "HumanEval.jsonl.gz")
    assert [line for line, _ in rows] == list(range(1, 165))
