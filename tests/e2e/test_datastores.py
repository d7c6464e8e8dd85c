"""Methods find their datastore, build it on first use, and refuse one that is not theirs."""

from __future__ import annotations

import importlib.util
import json
import logging
import shlex
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

import benchmarks.answers
import benchmarks.datastore_recipe
from benchmarks.cli import build_spec, measure
from benchmarks.datastore_config import CONFIGS, build_command, hydra_value
from benchmarks.datastore_recipe import windows
from benchmarks.documents import Document
from configs import composed
from methods.build import ConfigError
from methods.targets.toy import ToyCodec
from primitives.registry import RETRIEVERS
from support.processes import started

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "build_datastore.py"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SD_PRIMITIVES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def toy(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    own = [f"results_dir={tmp_path / 'results'}", "progress=false", "limit=2", "warmup=0"]
    if not any(word.startswith("datastore.limit") for word in overrides):
        own.append("++datastore.limit=6")
    return composed("debug=toy", "max_new_tokens=8", *own, *overrides)


def stores(cache: Path) -> list[Path]:
    return sorted((cache / "datastores").glob("[!.]*"))


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls the build command in this process: its exit code, stdout and stderr."""
    place = importlib.util.spec_from_file_location("build_datastore", SCRIPT)
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = module.main(arguments)
        return code, *capsys.readouterr()

    return call


WITH_STORES = ("rest", "dresd", "sense", "sense_ood", "sen_greedy", "se_only", "rest_soft")


@pytest.mark.parametrize("method", WITH_STORES)
def test_a_run_builds_its_store_once_and_names_it(tmp_path, cache, caplog, method):
    caplog.set_level(logging.INFO)
    config = toy(tmp_path, f"method={method}")
    outcome = measure(config)
    assert (outcome.code, outcome.message) == (0, None)
    (path,) = stores(cache)
    assert "building the datastore" in caplog.text
    caplog.clear()
    spec = build_spec(config)
    assert "building" not in caplog.text
    (facts,) = spec.datastores.values()
    assert outcome.summary["run"]["datastores"] == json.loads(json.dumps(spec.datastores))
    assert facts["num_documents"] == 7  # Six prompts, one of them with two turns.
    assert stores(cache) == [path]


def test_another_source_is_another_store_and_another_run(tmp_path, cache):
    specs = [
        build_spec(toy(tmp_path, "method=rest", f"datastore.source={source}"))
        for source in ("reference", "generated")
    ]
    assert len(stores(cache)) == 2
    assert len({spec.run_id for spec in specs}) == 2
    assert len(list((cache / "answers").glob("*.jsonl"))) == 1


def test_a_store_that_is_there_needs_no_answers(tmp_path, cache):
    """Nor does opening it cut off what may be another process's line in the making."""
    config = toy(tmp_path, "method=rest", "datastore.source=generated")
    build_spec(config)
    (file,) = (cache / "answers").glob("*.jsonl")
    with file.open("ab") as stream:
        stream.write(b'{"prompt_sha":')
    before = file.read_bytes()
    build_spec(config)
    assert file.read_bytes() == before


def test_builders_of_the_same_answers_generate_them_in_turn(tmp_path, cache, monkeypatch):
    """A second one waits at the lock, and finds the answers there."""
    call, waiting, batches = benchmarks.datastore_recipe.answer_call, [], []
    is_asked = threading.Event()

    class ToldLock(FileLock):
        def acquire(self, *args, **options):
            if waiting:
                is_asked.set()
            return super().acquire(*args, **options)

    def build(kind):
        method = {"tokens": "rest", "hidden_states": "dresd"}[kind]
        return build_spec(toy(tmp_path, f"method={method}", "datastore.source=generated"))

    def counted(target):
        answer = call(target)

        def ask(prompts, budget):
            batches.append(len(prompts))
            if not waiting:
                waiting.append(pool.submit(build, "hidden_states"))
                while not is_asked.wait(0.1):
                    assert not waiting[0].done(), waiting[0].result()
            return answer(prompts, budget)

        return ask

    monkeypatch.setattr(benchmarks.datastore_recipe, "answer_call", counted)
    monkeypatch.setattr(benchmarks.answers, "FileLock", ToldLock)
    with ThreadPoolExecutor(1) as pool:
        build("tokens")
        waiting[0].result()
    assert sum(batches) == 7  # Six prompts, one of them with two turns.
    (file,) = (cache / "answers").glob("*.jsonl")
    assert len(file.read_text().splitlines()) == 1 + 7
    assert len(stores(cache)) == 2


def test_where_a_store_lies_does_not_change_the_run(tmp_path, cache):
    first = build_spec(toy(tmp_path, "method=rest"))
    moved = shutil.copytree(stores(cache)[0], tmp_path / "moved")
    second = build_spec(toy(tmp_path, "method=rest", f"datastore.path={moved}"))
    assert second.run_id == first.run_id


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["retriever=suffix_array"], "searches a datastore of tokens, but there is none"),
        (["method=rest", "datastore=hidden_states"], "but this one holds hidden_states"),
        (["method=rest", "datastore.path=/nowhere"], "datastore /nowhere does not exist"),
        (["method=rest", "datastore.source=guessed"], "must be reference | generated"),
        (["method=rest", "datastore.limit=0"], "datastore.limit must be ≥ 1 or null, got 0"),
        (["method=rest", "datastore.path=''"], "datastore.path must name a folder"),
        (["method=rest", "datastore.overlap_ngram=1001"], "overlap_ngram must be ≤ 1000"),
        (["method=rest", "datastore.chunk_tokens=1"], "datastore.chunk_tokens must be in [2, 5368"),
        (["method=rest", "datastore.split=validation"], "dataset=quickstart has not: name a store"),
        (["method=rest", "+datastore.dims=3"], "datastore has no field 'dims'"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_decoded(tmp_path, overrides, message):
    outcome = measure(toy(tmp_path, *overrides))
    assert outcome.code == 2
    assert message in outcome.message
    assert not list((tmp_path / "results").rglob("requests.jsonl"))


def test_a_store_of_the_prompts_that_are_measured_is_refused(tmp_path, cache, script):
    outcome = measure(toy(tmp_path, "method=rest", "dataset.split=train"))
    assert outcome.code == 2
    assert "would be made from the very prompts that are measured" in outcome.message
    code, _, stderr = script("datastore=tokens", "model=toy", "split=test", "limit=6")
    assert code == 0
    assert "not compared with any test data" in stderr
    outcome = measure(toy(tmp_path, "method=rest", f"datastore.path={stores(cache)[0]}"))
    assert outcome.code == 2
    assert "was made from the very prompts that are measured" in outcome.message


def test_dropping_overlaps_needs_something_to_compare_with(script):
    code, _, stderr = script("datastore=tokens", "model=toy", "split=test", "drop_overlapping=true")
    assert code == 2
    assert "drop_overlapping=true needs test data" in stderr


def test_another_system_prompt_is_another_store(tmp_path, cache, monkeypatch):
    build_spec(toy(tmp_path, "method=rest"))
    encode = ToyCodec.encode
    monkeypatch.setattr(ToyCodec, "encode", lambda self, messages: [3, *encode(self, messages)])
    build_spec(toy(tmp_path, "method=rest"))
    assert len(stores(cache)) == 2


def test_texts_beyond_the_context_are_cut_into_windows_and_conversations_counted():
    report = {"num_cut_tokens": 0}
    text = Document(name="t", token_ids=tuple(range(10)))
    assert [ids for ids, _, _ in windows(text, 4, report)] == [
        (0, 1, 2, 3), (4, 5, 6, 7), (8, 9),
    ]  # fmt: skip
    talk = Document(name="c", token_ids=tuple(range(10)), num_known=2, num_prompt=3)
    assert list(windows(talk, 4, report)) == [((0, 1, 2, 3), 2, 3)]
    assert list(windows(talk, None, report)) == [(tuple(range(10)), 2, 3)]
    assert report["num_cut_tokens"] == 6


def test_values_in_the_build_command_survive_hydra_and_the_shell(tmp_path):
    path = tmp_path / "a folder" / "it's"
    config = composed(
        "datastore=tokens", "model=hf", "model.name_or_path=OWNER/NAME", "dataset=text",
        f"dataset.path={hydra_value(str(path))}", "dataset.pattern='*.py'",
        "+model.chat_template_kwargs={enable_thinking: false}",
    )  # fmt: skip
    words = shlex.split(build_command(config))[2:]
    again = composed(*words)
    for group in ("model", "dataset"):
        assert again[group] == config[group]


def test_a_store_of_another_vocabulary_is_refused(tmp_path, cache):
    build_spec(toy(tmp_path, "method=rest"))
    overrides = ["method=rest", "model.vocab_size=64", f"datastore.path={stores(cache)[0]}"]
    outcome = measure(toy(tmp_path, *overrides))
    assert outcome.code == 2
    assert "has tokenizer_hash 'toy-32', but 'toy-64' is needed" in outcome.message


def test_a_store_of_another_model_is_refused(tmp_path, cache):
    build_spec(toy(tmp_path, "method=dresd"))
    overrides = ["method=dresd", "model.seed=1", f"datastore.path={stores(cache)[0]}"]
    outcome = measure(toy(tmp_path, *overrides))
    assert outcome.code == 2
    assert "built with a model of revision 'seed-0'" in outcome.message


def test_settings_that_are_not_used_are_no_part_of_the_run(tmp_path, cache):
    ids = {
        build_spec(toy(tmp_path, "method=pld", *words)).run_id
        for words in ([], ["datastore=tokens"], ["datastore=hidden_states", "datastore.limit=3"])
    }
    assert len(ids) == 1
    build_spec(toy(tmp_path, "method=rest"))
    path = f"datastore.path={stores(cache)[0]}"
    first, second = (
        build_spec(toy(tmp_path, "method=rest", path, f"datastore.limit={n}")) for n in (3, 4)
    )
    assert first.run_id == second.run_id


def test_how_a_text_is_cut_is_part_of_its_store(tmp_path, cache, script):
    (tmp_path / "a.txt").write_text("some words\nand more words\n" * 5)
    (tmp_path / "b.txt").write_bytes(b"\xff")
    own = ["datastore=tokens", "model=toy", "dataset=text", f"dataset.path={tmp_path}"]
    assert script(*own, "dataset.pattern=*.txt")[0] == 2
    own += ["dataset.pattern=*.txt", "dataset.on_error=skip"]
    assert [script(*own, f"dataset.max_chars={n}")[0] for n in (30, 100)] == [0, 0]
    assert len(stores(cache)) == 2


def test_a_second_builder_waits_and_opens_what_the_first_has_built(tmp_path, cache, monkeypatch):
    config = toy(tmp_path, "method=rest")
    build = benchmarks.datastore_recipe.build_token_store

    def built_by_another_first(path, documents, **options):
        documents = list(documents)
        build(path, documents, **options)
        return build(path, documents, **options)

    monkeypatch.setattr(benchmarks.datastore_recipe, "build_token_store", built_by_another_first)
    assert measure(config).code == 0
    assert len(stores(cache)) == 1


def test_a_header_that_was_edited_is_refused(tmp_path, cache, script):
    build_spec(toy(tmp_path, "method=sense"))
    file = stores(cache)[0] / "header.json"
    values = json.loads(file.read_text())
    for name, value in (("options", {}), ("files", {}), ("num_tokens", None), ("report", 5)):
        file.write_text(json.dumps(values | {name: value}))
        outcome = measure(toy(tmp_path, "method=sense"))
        assert "header.json is damaged" in outcome.message
        assert script("--verify", str(file.parent))[0] == 2


def test_a_large_dataset_is_not_answered_unasked(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.datastore_recipe.MAX_UNASKED_PROMPTS", 10)
    outcome = measure(toy(tmp_path, "method=rest", "datastore.limit=null"))
    assert outcome.code == 2
    assert "is no small one: build it with\n  python scripts/build_datastore.py" in outcome.message
    assert measure(toy(tmp_path, "method=rest", "datastore.limit=10")).code == 0


def test_missing_faiss_is_said_before_decoding(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    outcome = measure(toy(tmp_path, "method=sense"))
    assert outcome.code == 2
    assert "pip install faiss-cpu" in outcome.message


def test_the_build_command_in_messages_gives_the_same_store(tmp_path, cache, script):
    config = toy(tmp_path, "method=sense", "datastore.limit=6")
    build_spec(config)
    (path,) = stores(cache)
    command = shlex.split(build_command(config))
    shutil.rmtree(cache)
    code, stdout, _ = script(*command[2:])
    assert code == 0
    assert stores(cache) == [path]
    assert stdout.splitlines()[-1] == str(path)
    assert "hidden_states store" in stdout


def test_a_store_is_described_and_verified(tmp_path, cache, script):
    build_spec(toy(tmp_path, "method=rest"))
    (path,) = stores(cache)
    assert "all files are intact" in script("--verify", str(path))[1]
    file = next(path.glob("tokens-*.bin"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    code, _, stderr = script("--verify", str(path))
    assert code == 2
    assert "tokens-00000.bin is damaged" in stderr
    outcome = measure(toy(tmp_path, "method=rest"))
    assert "tokens-00000.bin is damaged" in outcome.message


def test_text_files_become_a_store(tmp_path, cache, script):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("def f(x): return x\n" * 3)
    (tmp_path / "code" / "b.txt").write_text("not code")
    code, stdout, _ = script(
        "datastore=tokens", "model=toy", "dataset=text", f"dataset.path={tmp_path / 'code'}",
        "dataset.pattern=*.py",
    )  # fmt: skip
    assert code == 0
    assert "12 tokens in 1 documents" in stdout
    outcome = measure(toy(tmp_path, "method=rest", f"datastore.path={stores(cache)[0]}"))
    assert outcome.code == 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model=toy",), "say what to build: datastore=tokens or datastore=hidden_states"),
        (("datastore=tokens", "dataset=text", "model=toy"), "needs dataset.path"),
        (("datastore=tokens", "dataset=jsonl", "model=toy"), "which dataset=jsonl has not"),
        (("datastore=token",), "unknown datastore 'token', did you mean 'tokens'"),
        (("--verify",), "--verify takes one folder"),
        (("--describe", "nowhere"), "datastore nowhere does not exist"),
    ],
)
def test_mistakes_on_the_command_line_are_one_message(script, overrides, message):
    code, _, stderr = script(*overrides)
    assert code == 2
    assert message in stderr


HELD_BUILD = """
import runpy, sys
from methods.datastores import tokens
tokens.write_header = lambda *_: sys.stdin.read()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Builds as the script does, and waits for the end of its input before the header is written."""


def test_a_killed_build_leaves_nothing_that_looks_finished(tmp_path, cache, script):
    (tmp_path / "text.txt").write_text("some words to sort again and again\n")
    overrides = ["datastore=tokens", "model=toy", "dataset=text"]
    overrides.append(f"dataset.path={tmp_path / 'text.txt'}")
    command = [sys.executable, "-c", HELD_BUILD, str(SCRIPT), *overrides]
    with started(command, cwd=ROOT) as child:
        child.wait_until(lambda: any((cache / "datastores").glob(".*building*/tokens-*.bin")))
        child.kill()
    assert list((cache / "datastores").glob(".*building*"))
    assert stores(cache) == []
    assert script(*overrides)[0] == 0
    assert len(stores(cache)) == 1
    assert list((cache / "datastores").glob(".*building*")) == []


def test_every_datastore_file_mirrors_its_fields():
    for kind, cls in CONFIGS.items():
        written = composed(f"datastore={kind}")["datastore"]
        assert written.pop("kind") == kind
        assert cls(**written) == cls()
    written = composed("datastore=none")["datastore"]
    assert set(written) == {"kind", *(f.name for cls in CONFIGS.values() for f in fields(cls))}
    assert set(written.values()) == {None}


def test_retrievers_and_stores_fit():
    kinds = {RETRIEVERS.get(name).datastore for name in RETRIEVERS.names()}
    assert kinds == {None, *CONFIGS}


def test_a_wrong_kind_of_store_is_refused_by_the_builder(tmp_path):
    with pytest.raises(ConfigError, match="add datastore=tokens"):
        build_spec(toy(tmp_path, "retriever=suffix_array"))
