"""Every file of every configuration group composes, builds and runs on the toy target."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import configs
from benchmarks.cli import build_spec
from benchmarks.datasets import DATASETS
from benchmarks.files import RunFolderError
from benchmarks.paper_tables import TABLES
from benchmarks.plan import load_dataset
from benchmarks.runner import run
from configs import composed
from methods.build import MODEL_KINDS, ConfigError, build_law, build_method, build_model
from primitives.registry import RETRIEVERS, TREE_BUILDERS, VERIFIERS, RegistryError

REGISTRIES = {
    "retriever": RETRIEVERS,
    "tree_builder": TREE_BUILDERS,
    "verifier": VERIFIERS,
    "dataset": DATASETS,
}
NOT_LOADER_FIELDS = {"dataset": {"split"}}


def run_on_toy(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    small = ("limit=3", "max_new_tokens=12", "progress=false", "++datastore.limit=6")
    spec = build_spec(composed(*overrides, "model=toy", *small, f"results_dir={tmp_path}/results"))
    result = run(spec)
    assert result.failure is None
    assert result.path.is_relative_to(tmp_path)
    return dict(result.summary)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Datastores that runs build do not outlive the test."""
    monkeypatch.setenv("SD_PRIMITIVES_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("method", configs.choices("method"))
def test_every_method_runs_on_the_toy(method: str, tmp_path: Path) -> None:
    assert composed(f"method={method}")["method"]["name"] == method
    assert run_on_toy(tmp_path, f"method={method}")


@pytest.mark.parametrize("group", ["experiment", "debug"])
def test_every_diff_runs_on_the_toy(group: str, tmp_path: Path) -> None:
    # Those that are sweeps are in test_experiments.py.
    for name in set(configs.choices(group)) - set(TABLES):
        assert run_on_toy(tmp_path / name, f"{group}={name}")


@pytest.mark.parametrize("kind", REGISTRIES)
def test_files_mirror_the_registry(kind: str) -> None:
    assert set(configs.choices(kind)) - {"none"} == set(REGISTRIES[kind].names())
    for name in REGISTRIES[kind].names():
        written = composed(f"{kind}={name}")[kind]
        assert written.pop("name") == name
        fields = dataclasses.fields(REGISTRIES[kind].get(name))
        own = {
            key: value
            for key, value in written.items()
            if key not in NOT_LOADER_FIELDS.get(kind, ())
        }
        assert own == {field.name: default_of(field) for field in fields if field.init}


def default_of(field: dataclasses.Field[Any]) -> Any:
    is_made = field.default_factory is not dataclasses.MISSING
    return field.default_factory() if is_made else field.default


@pytest.mark.parametrize("model", [m for m in configs.choices("model") if m != "hf"])
def test_every_model_file_is_a_valid_configuration(model: str) -> None:
    fields = composed(f"model={model}")["model"]
    assert fields.pop("node_budget") >= 1
    config = MODEL_KINDS[fields.pop("kind")](**fields)
    assert config.name == model


def test_hf_needs_a_name() -> None:
    with pytest.raises(ConfigError, match=r"needs model\.name_or_path"):
        build_model({"kind": "huggingface", "name_or_path": None})


def test_command_line_choice_beats_the_methods_own_in_any_order() -> None:
    for overrides in (["method=pld", "tree_builder=trie"], ["tree_builder=trie", "method=pld"]):
        config = composed(*overrides)
        assert config["tree_builder"]["name"] == "trie"
        assert config["retriever"]["name"] == "prompt_lookup"


def test_swapped_primitives_are_part_of_the_label() -> None:
    overrides = ["method=pld", "tree_builder=trie", "retriever.match=all", "limit=3"]
    own = {"retriever": "prompt_lookup", "tree_builder": "chain", "verifier": "greedy"}
    assert configs.swapped_primitives("pld", own) == []
    assert configs.swapped_primitives("pld", own | {"tree_builder": "trie"}) == ["trie"]
    both = {"verifier": "sampling", "tree_builder": "trie", "retriever": "prompt_lookup"}
    assert configs.swapped_primitives("pld", both) == ["trie", "sampling"]
    spec = build_spec(composed(*overrides, "model=toy"), ["trie"])
    assert "pld+trie" in spec.path.parts


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["temperature=0.8"], "temperature=0.8 asks for sampling, but verifier=greedy"),
        (["verifier=sampling"], "but temperature=0 is greedy decoding"),
        (["temperature=-1"], "temperature must be ≥ 0"),
        (["top_p=0.5"], "top_p have no effect at temperature=0"),
        (["retriever.max_ngram=0"], r"max_ngram must be ≥ min_ngram \(1\), got 0"),
        (["+retriever.max_ngrams=4"], "no field 'max_ngrams', did you mean 'max_ngram'"),
        (["retriever.name=prompt_lokup"], "unknown retriever 'prompt_lokup', did you mean"),
        (["temperature=hot"], r"temperature of the configuration must be a number, got 'hot'"),
        (["retriever.max_ngram=2.5"], r"max_ngram of retriever 'prompt_lookup' must be an int"),
        (["retriever.match=some"], r"must be first \| last \| all, got 'some'"),
        (["method.node_budget=true"], r"node_budget of method must be an int, got True"),
        (["method.node_budget=0"], "retriever=prompt_lookup needs room for drafts"),
        (["method.node_budget=-1"], r"node_budget must be in \[0, 1024\], got -1"),
        (["method.max_candidates=0"], r"max_candidates must be in \[1, 4096\], got 0"),
    ],
)
def test_impossible_combinations_are_refused_with_the_reason(
    overrides: list[str], message: str
) -> None:
    config = composed("method=pld", *overrides)
    with pytest.raises((ConfigError, RegistryError, ValueError), match=message):
        build_method(config, build_law(config))


def test_a_wrong_proposal_kind_is_refused() -> None:
    class Sampled(RETRIEVERS.get("prompt_lookup")):  # type: ignore[misc]
        proposal = "iid"

    class OnlyPointMass(VERIFIERS.get("greedy")):  # type: ignore[misc]
        valid_proposals = frozenset({"point_mass"})

    from methods import build

    with pytest.raises(ConfigError, match="iid drafts, but verifier=greedy takes"):
        build._check_proposal(Sampled(), OnlyPointMass())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method=pdl", "unknown method 'pdl', did you mean 'pld'"),
        ("model=smollm", "unknown model 'smollm', did you mean 'smollm2-135m' or"),
        ("method=pld,vanila", "unknown method 'vanila', did you mean 'vanilla'?"),
        ("dataset=xyz", "unknown dataset 'xyz'. There is: "),
        ("draft_model=null", "There is: hf, llama-68m"),
        ("retriever=nothing_like_it", "unknown retriever 'nothing_like_it'. There is: "),
    ],
)
def test_unknown_choices_are_answered_with_near_matches(override: str, message: str) -> None:
    assert message in str(configs.unknown_choice([override]))


@pytest.mark.parametrize(
    "override",
    [
        "method=pld",
        "experiment=null",
        "limit=3",
        "-m",
        "model.name=xyz",
        "method=pld,vanilla",
        "method=glob(*)",
    ],
)
def test_known_choices_pass(override: str) -> None:
    assert configs.unknown_choice([override]) is None


def test_dataset_without_a_path_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"needs dataset\.path=FILE"):
        load_dataset(composed("dataset=jsonl"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["limit=abc"], r"limit of the configuration must be an int \| null, got 'abc'"),
        (["limit=1.5"], "limit of the configuration must be an int"),
        (["limit=0"], "limit must be ≥ 1 or null, got 0"),
        (["num_threads=0"], "num_threads must be ≥ 1 or null, got 0"),
        (["results_dir=null"], "results_dir of the configuration must be text, got None"),
        (["method.name=null"], "name of method must be text, got None"),
        (["max_new_tokens=0"], "max_new_tokens must be ≥ 1, got 0"),
        (["repeats=0"], "repeats must be ≥ 1, got 0"),
        (["state=cold"], r"state of the configuration must be reset \| carry \| warm, got 'cold'"),
        (["+foo=1"], "unknown option 'foo'"),
        (["+limits=1"], "unknown option 'limits', did you mean 'limit'"),
        (["dataset.split=dev"], "split of dataset=quickstart must be test or train, got 'dev'"),
    ],
)
def test_wrong_options_are_told(overrides: list[str], message: str, tmp_path: Path) -> None:
    config = composed("method=pld", "model=toy", f"results_dir={tmp_path}", *overrides)
    with pytest.raises(ValueError, match=message):
        build_spec(config)


def test_results_folder_is_checked_before_the_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    config = composed("model=hf", "model.name_or_path=/nowhere", f"results_dir={tmp_path}/file/x")
    with pytest.raises(RunFolderError, match="file"):
        build_spec(config)


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_told(device: str) -> None:
    config = {"kind": "huggingface", "name_or_path": "/nowhere", "device": device}
    with pytest.raises(ValueError, match=f"model.device={device} is not to be had here"):
        build_model(config)
