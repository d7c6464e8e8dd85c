"""The hub, by way of a repository that lies in a folder; and what is said when it is out of reach.

No test reaches the network: a folder answers `load_dataset` in the hub's place.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import huggingface_hub
import pytest

from benchmarks.datasets import DATASETS, DatasetError, hub

pytestmark = pytest.mark.slow  # `make check` is for while one writes.

COMMIT = "0123456789abcdef0123456789abcdef01234567"

datasets = pytest.importorskip("datasets")
parquet = pytest.importorskip("pyarrow.parquet")
pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def no_network(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def repository(folder: Path, config: str | None, **splits: list[dict]) -> Path:
    """A folder as a repository on the hub is laid out."""
    place = folder / (config or "data")
    place.mkdir(parents=True)
    for split, rows in splits.items():
        table = pyarrow.Table.from_pylist(rows)
        parquet.write_table(table, place / f"{split}-00000-of-00001.parquet")
    if config is not None:
        files = [f"  - split: {split}\n    path: {config}/{split}-*.parquet\n" for split in splits]
        text = f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{''.join(files)}---\n"
        (folder / "README.md").write_text(text)
    return folder


ANSWER = {"value": "Ra", "aliases": ["Re", "Ra"], "type": "x"}
TURNS = [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "a"}]
CODE = {"code": "f = 1", "task_id": 11, "test_list": ["assert f"]}
HUB: dict[str, tuple[str | None, str, list[dict]]] = {
    "gsm8k": ("main", "test", [{"question": f"{n}?", "answer": f"#### {n}"} for n in "12"]),
    "codealpaca": (
        None,
        "train",
        [{"instruction": f"{n}", "input": "", "output": "x"} for n in range(22)],
    ),
    "ultrachat": (
        None,
        "test_sft",
        [{"prompt": "A?", "prompt_id": "p", "messages": TURNS}],
    ),
    "triviaqa": (
        "rc.nocontext",
        "validation",
        [{"question": "Sun?", "question_id": "tc_1", "answer": ANSWER}],
    ),
    "mt_bench": (
        None,
        "train",
        [{"category": "qa", "prompt": ["A?", "B?"], "prompt_id": 7, "reference": ["a", "b"]}],
    ),
    "humaneval": (
        "openai_humaneval",
        "test",
        [
            {
                "task_id": "HumanEval/0",
                "prompt": "def f():\n",
                "canonical_solution": "    pass\n",
                "test": "def check(f): f()\n",
                "entry_point": "f",
            }
        ],
    ),
    "mbpp": (
        "full",
        "test",
        [{"text": "Do.", "test_setup_code": "", "challenge_test_list": ["x"], **CODE}],
    ),
    "cnn_dm": (
        "3.0.0",
        "test",
        [{"article": "News.", "highlights": "N.", "id": "x"}],
    ),
    "nq_open": (
        "nq_open",
        "validation",
        [{"question": "when", "answer": ["now", "then"]}],
    ),
    "speed_bench": (
        "qualitative",
        "test",
        [{"question_id": "a", "category": "qa", "sub_category": "b", "turns": ["A?"]}],
    ),
}
"""Loader -> the hub's config, split and rows for our split `test`."""


@pytest.mark.parametrize("name", HUB)
def test_hub_copy_and_file_of_equal_content_have_one_hash(tmp_path, monkeypatch, name):
    config, split, rows = HUB[name]
    folder = repository(tmp_path / "repo", config, **{split: rows})
    monkeypatch.setattr(DATASETS.get(name), "address", str(folder))
    monkeypatch.setattr(hub, "find_commit", lambda address, revision: COMMIT)
    from_hub = DATASETS.create(name).load("test")
    assert from_hub.source == f"hub:{folder}@{COMMIT}"

    copy = DATASETS.create(name, path=str(folder)).load("test")
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    local = DATASETS.create(name, path=str(file)).load("test")
    assert from_hub.prompts == local.prompts == copy.prompts
    assert from_hub.content_hash == local.content_hash == copy.content_hash


def test_the_recorded_commit_is_the_one_that_is_loaded(tmp_path, monkeypatch):
    asked = []

    class Api:
        def dataset_info(self, address, revision):
            asked.append((address, revision))
            return huggingface_hub.DatasetInfo(id=address, sha=COMMIT, tags=[])

    def load(address, config, *, split, revision):
        asked.append((address, config, split, revision))
        return [{"question": "1?", "answer": "#### 1"}]

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(datasets, "load_dataset", load)
    dataset = DATASETS.create("gsm8k", revision="v1").load("train")
    assert dataset.source == f"hub:openai/gsm8k@{COMMIT}"
    assert asked == [("openai/gsm8k", "v1"), ("openai/gsm8k", "main", "train", COMMIT)]
    asked.clear()
    pinned = DATASETS.get("gsm8k").pinned
    assert DATASETS.create("gsm8k").load("test").source == f"hub:openai/gsm8k@{pinned}"
    assert asked == [("openai/gsm8k", "main", "test", pinned)]


def test_every_dataset_of_the_hub_is_pinned_but_one():
    """SPEED-Bench's owners add to it, and no commit of it is known here."""
    names = {name for name in HUB if DATASETS.get(name).pinned is None}
    assert names == {"speed_bench"}
    assert all(re.fullmatch("[0-9a-f]{40}", DATASETS.get(n).pinned) for n in HUB.keys() - names)


def test_a_bad_row_is_named_with_its_place(tmp_path, monkeypatch):
    folder = repository(tmp_path, "main", test=[{"question": "1?", "answer": " "}])
    monkeypatch.setattr(DATASETS.get("gsm8k"), "address", str(folder))
    monkeypatch.setattr(hub, "find_commit", lambda address, revision: COMMIT)
    with pytest.raises(DatasetError, match=rf"hub:.*@{COMMIT}:0: field 'answer'"):
        DATASETS.create("gsm8k").load("test")


@pytest.mark.parametrize(
    ("config", "split", "reason"),
    [("other", "test", "BuilderConfig 'main' not found"), ("main", "other", "Unknown split")],
)
def test_an_unknown_part_is_one_message(tmp_path, monkeypatch, config, split, reason):
    folder = repository(tmp_path, config, **{split: [{"question": "1?", "answer": "1"}]})
    monkeypatch.setattr(DATASETS.get("gsm8k"), "address", str(folder))
    monkeypatch.setattr(hub, "find_commit", lambda address, revision: COMMIT)
    with pytest.raises(DatasetError, match=rf"config main, split test, .*ValueError: {reason}"):
        DATASETS.create("gsm8k").load("test")


def test_out_of_reach_is_one_message():
    with pytest.raises(DatasetError) as error:
        DATASETS.create("nq_open", revision="v1").load("test")
    text = str(error.value)
    assert text.startswith(
        "dataset=nq_open: cannot read google-research-datasets/nq_open (config nq_open, split "
        "validation, revision v1) on the Hugging Face hub: OfflineModeIsEnabled: "
    )
    assert text.endswith(". dataset.path=FILE_OR_FOLDER reads a local copy")
    assert "\n" not in text


def test_a_missing_library_is_one_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DatasetError, match=r"needs the package datasets: pip install '\.\[data\]'"):
        DATASETS.create("gsm8k").load("test")


def test_a_missing_parquet_library_is_one_message(tmp_path, monkeypatch):
    folder = repository(tmp_path, "main", test=[{"question": "1?", "answer": "1"}])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DatasetError, match=r"parquet: a parquet file needs the package pyarrow"):
        DATASETS.create("gsm8k", path=str(folder)).load("test")


def test_a_damaged_parquet_file_is_named(tmp_path):
    (tmp_path / "test.parquet").write_bytes(b"PAR1 nothing else")
    with pytest.raises(DatasetError, match=r"test\.parquet: expected a parquet file: "):
        DATASETS.create("gsm8k", path=str(tmp_path)).load("test")


def test_a_revision_needs_the_hub(tmp_path):
    with pytest.raises(DatasetError, match=r"with dataset\.path it must be null, got 'v1'"):
        DATASETS.create("gsm8k", path=str(tmp_path), revision="v1").load("test")
