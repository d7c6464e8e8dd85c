"""A run that has ended is found without its model, and never one of something else."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from benchmarks.cli import build_spec, measure
from benchmarks.inputs import _model_inputs, folder_files, inputs_digest
from benchmarks.plan import load_dataset, make_plan
from configs import composed
from methods.targets.facts import files_hash, hub_commit
from support.runs import status_of

TOY = ("debug=toy", "limit=2", "max_new_tokens=8", "warmup=0", "progress=false")
NOTHING = "nothing was measured again"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SD_PRIMITIVES_CACHE", str(tmp_path / "cache"))


def toy(tmp_path, *words):
    return composed(*TOY, f"results_dir={tmp_path}/results", *words)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Results with one finished run of `pld`, which needs no cache."""
    folder = tmp_path_factory.mktemp("measured")
    assert measure(toy(folder, "method=pld")).code == 0
    return folder


@pytest.fixture
def finished(tmp_path, measured):
    """The folder of such a run below `tmp_path`."""
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    (path,) = (tmp_path / "results/toy/quickstart/pld").iterdir()
    return path


@pytest.fixture
def no_model(monkeypatch):
    """A function that makes loading a model an error, as a user would be told of it."""

    def forbid():
        def build_model(config, group):
            raise ValueError("a model was loaded")

        monkeypatch.setattr("benchmarks.plan.build_model", build_model)
        monkeypatch.setattr("benchmarks.plan._LOADED", {})

    return forbid


@pytest.mark.parametrize("words", [("method=pld",), ("method=rest",)])
def test_a_finished_run_needs_no_model(tmp_path, no_model, capsys, words):
    first = measure(toy(tmp_path, *words))
    assert first.code == 0
    no_model()
    started = []
    again = measure(toy(tmp_path, *words), on_start=started.append)
    assert (again.code, again.path, again.summary) == (0, first.path, first.summary)
    assert started == [first.path]
    assert NOTHING in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("limit=3",), ("max_new_tokens=9",), ("model.seed=1",), ("seed=1",), ("order_seed=1",),
        ("retriever.max_ngram=2",), ("dataset.split=train",),
    ],
)  # fmt: skip
def test_another_run_is_not_it(tmp_path, finished, words):
    assert make_plan(toy(tmp_path, "method=pld")).find_ended() == finished
    assert make_plan(toy(tmp_path, "method=pld", *words)).find_ended() is None


@pytest.mark.parametrize(
    "word", ["stop_early=true", "on_error=stop", "allow_code_execution=true", "shard=1/2"]
)
def test_what_changes_no_result_does_not_matter(tmp_path, finished, word):
    assert make_plan(toy(tmp_path, "method=pld", word)).find_ended() == finished


def test_other_code_is_another_run(tmp_path, finished, monkeypatch):
    monkeypatch.setattr("benchmarks.inputs.code_version", lambda: "edited")
    assert make_plan(toy(tmp_path, "method=pld")).find_ended() is None


@pytest.mark.parametrize("state", ["running", "interrupted", "failed", "stopped"])
def test_a_run_that_has_not_finished_is_not_it(tmp_path, finished, state):
    (finished / "status.json").write_text(json.dumps(status_of(finished) | {"state": state}))
    assert make_plan(toy(tmp_path, "method=pld")).find_ended() is None
    is_enough = make_plan(toy(tmp_path, "method=pld", "stop_early=true")).find_ended() is not None
    assert is_enough is (state == "stopped")


def test_lost_rows_are_told(tmp_path, finished):
    rows = finished / "requests.jsonl"
    rows.write_bytes(b"".join(rows.read_bytes().splitlines(keepends=True)[:-1]))
    outcome = measure(toy(tmp_path, "method=pld"))
    assert outcome.code == 2
    assert "marked as ended, but holds 3 of 4 rows" in outcome.message


def test_a_damaged_neighbour_is_no_obstacle(tmp_path, finished):
    other = finished.parent / "000"
    other.mkdir()
    (other / "status.json").write_text("{")
    assert make_plan(toy(tmp_path, "method=pld")).find_ended() == finished


def questions(path, text):
    path.write_text(json.dumps({"turns": [text]}) + "\n")


def test_another_dataset_file_is_another_run(tmp_path, no_model):
    file = tmp_path / "mine.jsonl"
    words = ("method=pld", "dataset=jsonl", f"dataset.path={file}")
    questions(file, "why does it rain")
    path = measure(toy(tmp_path, *words)).path
    no_model()
    file.touch()
    assert measure(toy(tmp_path, *words)).path == path
    questions(file, "why does it snow")
    assert measure(toy(tmp_path, *words)).message == "a model was loaded"


@pytest.mark.parametrize("is_named", [True, False])
def test_another_datastore_is_another_run(tmp_path, no_model, is_named):
    build_spec(toy(tmp_path, "method=rest"))
    (store,) = (path for path in (tmp_path / "cache/datastores").iterdir() if path.is_dir())
    words = ["method=rest"]
    if is_named:
        store = shutil.move(store, tmp_path / "store")
        # The toy's own questions: a store of another split of the dataset may be searched.
        words.append(f"datastore.path={store}")
    path = measure(toy(tmp_path, *words)).path
    no_model()
    assert measure(toy(tmp_path, *words)).path == path
    os.utime(store / "header.json" if not is_named else f"{store}/header.json")
    assert measure(toy(tmp_path, *words)).message == "a model was loaded"


@pytest.mark.parametrize("change", ["limit=3", "split=test"])
def test_other_options_of_a_store_in_the_cache_are_another_run(tmp_path, no_model, change):
    assert measure(toy(tmp_path, "method=rest")).code == 0
    no_model()
    assert make_plan(toy(tmp_path, "method=rest", f"datastore.{change}")).find_ended() is None


def model(folder, **options):
    return {"kind": "huggingface", "name_or_path": str(folder), "chat_template": "auto", **options}


def test_a_local_model_is_known_by_size_and_time_of_its_files(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    weights = folder / "model.safetensors"
    weights.write_bytes(b"1234")
    before = _model_inputs(model(folder))
    assert before == _model_inputs(model(folder))
    times = weights.stat()
    weights.write_bytes(b"4321")
    is_changed = False
    while not is_changed:  # The time of a change has steps, of milliseconds on some systems.
        os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))  # As `cp -p` would.
        is_changed = weights.stat().st_ctime_ns != times.st_ctime_ns
    after = _model_inputs(model(folder))
    assert after["files"]["model.safetensors"][:2] == before["files"]["model.safetensors"][:2]
    assert after != before
    (folder / "extra.json").write_text("{}")
    assert _model_inputs(model(folder)) != after


def test_a_draft_model_belongs_to_the_run(tmp_path):
    config, folder = toy(tmp_path, "method=pld"), tmp_path / "draft"
    dataset, digests = load_dataset(config), set()
    for text in ("1", "12"):
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").write_text(text)
        digests.add(inputs_digest({**config, "draft_model": model(folder)}, dataset, (), None))
    digests.add(inputs_digest({**config, "draft_model": {"kind": None}}, dataset, (), None))
    assert len(digests - {None}) == 3
    elsewhere = {**config, "draft_model": model(folder, trust_remote_code=True)}
    assert inputs_digest(elsewhere, dataset, (), None) is None


def test_a_store_without_its_split_is_not_known(tmp_path):
    file = tmp_path / "mine.jsonl"
    questions(file, "why does it rain")
    words = ("method=rest", "dataset=jsonl", f"dataset.path={file}")
    config = toy(tmp_path, *words)
    config["datastore"] |= {"split": "test"}
    file.unlink()
    assert inputs_digest(config, load_dataset(toy(tmp_path)), (), "tokens") is None


def test_a_template_file_belongs_to_the_model(tmp_path):
    (tmp_path / "model").mkdir()
    template = tmp_path / "chat.jinja"
    template.write_text("a")
    before = _model_inputs(model(tmp_path / "model", chat_template=str(template)))
    template.write_text("ab")
    assert _model_inputs(model(tmp_path / "model", chat_template=str(template))) != before


def test_what_may_come_from_elsewhere_is_not_known(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    assert _model_inputs(model(tmp_path)) is None
    assert _model_inputs(model("x", trust_remote_code=True)) is None
    assert _model_inputs(model("x", tp_plan="auto")) is None
    assert _model_inputs(model("embedded")) is None  # Not made yet.
    assert _model_inputs(model("")) is None


def test_a_hub_model_is_known_by_the_commit_that_would_be_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.utils.hub._is_offline_mode", True, raising=False)
    home = tmp_path / "hub"
    for name in (
        "huggingface_hub.constants.HF_HUB_CACHE",
        "transformers.utils.hub.TRANSFORMERS_CACHE",
    ):
        monkeypatch.setattr(name, str(home), raising=False)
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = home / "models--some--model" / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({"model_type": "llama"}))
    refs = home / "models--some--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    assert hub_commit("some/model", None) == commit
    assert hub_commit("some/model", "absent") is None
    assert hub_commit("some/other", None) is None


def test_folder_files_of_no_folder(tmp_path):
    assert folder_files(tmp_path / "absent") == {}


def test_processes_that_would_measure_the_same_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.plan.world_size", lambda: 2)
    with pytest.raises(ValueError, match="torchrun has started 2 processes"):
        make_plan(toy(tmp_path, "method=pld"))


def test_other_weights_of_the_same_size_are_another_model(tmp_path):
    (tmp_path / "deep").mkdir()
    weights = tmp_path / "deep" / "model.safetensors"
    weights.write_bytes(bytes(1_000_000))
    before = files_hash(str(tmp_path))
    assert files_hash(str(tmp_path)) == before
    trained = bytearray(1_000_000)
    trained[::1000] = b"x" * 1000
    weights.write_bytes(trained)
    assert files_hash(str(tmp_path)) != before
    assert files_hash(str(tmp_path / "absent")) is None
