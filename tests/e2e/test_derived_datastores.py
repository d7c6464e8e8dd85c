"""Stores that come from a model or another store: built once, found again, refused elsewhere."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.cli import build_spec, measure
from benchmarks.datastore_config import BigramsConfig, build_command
from benchmarks.derived_recipes import BigramsRecipe
from configs import composed
from methods.build import build_model
from methods.datastores.folder import read_header

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_datastore.py"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SD_PRIMITIVES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Calls the build command in this process: its exit code and all output."""
    place = importlib.util.spec_from_file_location("build_datastore", SCRIPT)
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)

    def call(*arguments: str) -> tuple[int, str]:
        code = module.main(arguments)
        return code, "".join(capsys.readouterr())

    return call


def toy(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    own = [f"results_dir={tmp_path / 'results'}", "progress=false", "limit=2", "warmup=0"]
    small = ["max_new_tokens=8", "datastore.limit=6"]
    return composed("debug=toy", *small, *own, *overrides)


def folders(cache: Path, kind: str = "") -> list[Path]:
    paths = (cache / "datastores").glob("[!.]*")
    return sorted(path for path in paths if kind in path.name)


def stores(cache: Path) -> dict[str, Path]:
    """By kind."""
    return {read_header(path).kind: path for path in folders(cache)}


def test_trees_are_made_from_a_token_store_and_found_again(tmp_path: Path, cache: Path) -> None:
    outcome = measure(toy(tmp_path, "method=crest"))
    assert (outcome.code, outcome.message) == (0, None)
    found = stores(cache)
    assert set(found) == {"tokens", "ngram_trees"}
    (facts,) = outcome.summary["run"]["datastores"].values()
    tokens = read_header(found["tokens"])
    assert facts["num_documents"] == tokens.num_documents == 7
    assert facts["report"]["overlap"] == tokens.report["overlap"]
    build_spec(toy(tmp_path, "method=crest", "datastore.max_bytes=2000"))
    sizes = [read_header(path).num_bytes for path in folders(cache, "ngram_trees")]
    assert len(sizes) == 2  # Another budget is another store of the same corpus.
    assert min(sizes) <= 2000
    build_spec(toy(tmp_path, "method=rest"))  # Searches that very corpus.
    assert folders(cache, "tokens") == [found["tokens"]]


def test_bigrams_belong_to_the_model_and_to_no_dataset(
    tmp_path: Path, cache: Path, script: Callable[..., tuple[int, str]]
) -> None:
    config = toy(tmp_path, "method=ngrammys", "dataset.split=train")
    outcome = measure(config)
    assert (outcome.code, outcome.message) == (0, None)
    (path,) = stores(cache).values()
    (facts,) = outcome.summary["run"]["datastores"].values()
    assert facts["num_tokens"] == 32
    assert facts["options"] == {"num_next": 16, "prefix_text": "\n", "prefix_ids": []}
    build_spec(toy(tmp_path, "method=ngrammys", "datastore.limit=3"))
    assert list(stores(cache).values()) == [path]
    command = build_command(config)
    assert "dataset" not in command.replace("datastore", "")
    shutil.rmtree(cache)
    code, output = script(*shlex.split(command)[2:])
    assert code == 0
    assert "bigrams store, 32 tokens in 0 documents" in output
    assert stores(cache) == {"bigrams": path}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["retriever=bigram"], "searches a datastore of bigrams, but there is none"),
        (["method=crest", "datastore=tokens"], "but this one holds tokens"),
        (["method=ngrammys", "datastore.num_next=0"], "datastore.num_next must be ≥ 1, got 0"),
        (["method=crest", "datastore.max_ngram=0"], r"datastore.max_ngram must be ≥ min_ngram"),
        (["method=crest", "datastore.chunk_tokens=100"], "n-gram trees are counted in one chunk"),
        (["method=crest", "datastore.min_count=1000"], "no n-gram of 1 to 5 tokens occurs 1000"),
        (["method=crest", "dataset.split=train"], "would be made from the very prompts"),
    ],
)
def test_what_cannot_work_is_said(tmp_path: Path, overrides: list[str], message: str) -> None:
    outcome = measure(toy(tmp_path, *overrides))
    assert outcome.code == 2
    assert message in str(outcome.message)


def test_bigrams_of_another_model_are_refused(tmp_path: Path, cache: Path) -> None:
    build_spec(toy(tmp_path, "method=ngrammys"))
    path = stores(cache)["bigrams"]
    outcome = measure(toy(tmp_path, "method=ngrammys", "model.seed=1", f"datastore.path={path}"))
    assert "built with a model of revision 'seed-0'" in str(outcome.message)


def test_a_large_model_on_a_cpu_is_not_asked_unasked(tmp_path: Path) -> None:
    config = toy(tmp_path, "method=ngrammys")
    loaded = build_model(config["model"])
    settings = BigramsConfig()
    BigramsRecipe(settings, config, loaded, progress=False).check_size()
    large = dataclasses.replace(loaded, facts={**loaded.facts, "num_parameters": 10**13})
    with pytest.raises(ValueError, match=r"takes a CPU long .*: build it with\n  python"):
        BigramsRecipe(settings, config, large, progress=False).check_size()
    on_gpu = dataclasses.replace(large, devices=(torch.device("cuda"),))
    BigramsRecipe(settings, config, on_gpu, progress=False).check_size()


def test_both_kinds_are_described_and_verified(
    tmp_path: Path, cache: Path, script: Callable[..., tuple[int, str]]
) -> None:
    for method in ("crest", "ngrammys"):
        build_spec(toy(tmp_path, f"method={method}"))
    for kind, path in stores(cache).items():
        code, output = script("--verify", str(path))
        assert code == 0
        assert f"{kind} store, " in output
        assert "all files are intact" in output
        assert json.loads((path / "header.json").read_text())["kind"] == kind
