"""Experiments that are sweeps: what makes one, and that every cell of every one can be built."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException

import configs
from benchmarks.paper_tables import TABLES
from configs.sweep_cells import cells
from methods.build import build_law, build_method

FOLDER = configs.CONFIG_DIR / "experiment"
SWEEPS = tuple(sorted(TABLES))


@pytest.fixture
def loader() -> Iterator[ConfigLoader]:
    with initialize_config_dir(str(configs.CONFIG_DIR), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


def labels(*words: str) -> list[str]:
    """The cells of a command, each as its overrides are typed in a shell."""
    with initialize_config_dir(str(configs.CONFIG_DIR), version_base="1.3"):
        chosen = [word for word in words if word.startswith("experiment=")]
        config = compose("config", overrides=chosen, return_hydra_config=True)
        params = config.hydra.sweeper.params or {}
        return cells(words, params, GlobalHydra.instance().config_loader())


@pytest.mark.parametrize("name", SWEEPS)
def test_cells_can_be_built(name: str) -> None:
    found = labels(f"experiment={name}", "model=toy")
    assert len(set(found)) == len(found) > 1
    assert [configs.unknown_choice(shlex.split(label)) for label in found] == [None] * len(found)
    for label in (found[0], found[-1]):
        config = configs.composed(*shlex.split(label))
        build_method(config, build_law(config))
        # Small versions need no files of others and no hub.
        assert config["dataset"]["name"] == "quickstart"
        assert config["limit"] <= 12


@pytest.mark.parametrize("name", ["table3", "scaling"])
def test_the_full_version_is_larger(name: str) -> None:
    config = configs.composed(*shlex.split(labels(f"experiment=[{name},full]")[0]))
    assert config["model"]["name"] == "qwen3-8b"
    assert (config["dataset"]["name"], config["limit"]) == ("gsm8k", 200)
    assert config["max_new_tokens"] == 512


def test_the_ablation_has_equal_budgets() -> None:
    found = [configs.composed(*shlex.split(label)) for label in labels("experiment=table3")]
    assert [config["method"]["max_candidates"] for config in found] == [16] * 4
    assert [config["datastore"]["source"] for config in found] == ["reference"] * 4
    assert len({config["method"]["node_budget"] for config in found}) == 1


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_file_begins_with_its_command(path: Path) -> None:
    package, command = path.read_text().splitlines()[:2]
    assert package == "# @package _global_"
    assert command.startswith("# python run.py ")
    assert path.stem in command


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_says_what_it_needs_and_what_is_published(name: str) -> None:
    head = [line for line in (FOLDER / f"{name}.yaml").read_text().splitlines() if line[:1] == "#"]
    for word in ("Full: 'experiment=[", "Any machine; ", "Published"):
        assert sum(line.startswith(f"# {word}") for line in head) == 1


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ([], []),
        (["method=pld"], []),
        (["experiment=null"], []),
        (["experiment=table3", "limit=2"], [["table3"]]),
        (["experiment=smoke", "experiment=table3"], [["table3"]]),
        (["experiment=[table3,full]"], [["table3", "full"]]),
        (["experiment=smoke,quick"], [["smoke"], ["quick"]]),
    ],
)
def test_chosen_experiments(words: list[str], chosen: list[list[str]]) -> None:
    assert configs.experiments(words) == chosen


@pytest.mark.parametrize(
    ("words", "is_sweep"),
    [
        (["method=pld"], False),
        (["experiment=smoke"], False),
        (["experiment=smoke,quick"], False),
        (["experiment=table3"], True),
        (["experiment=[table3,full]"], True),
        (["experiment=table3", "method=sense"], True),
        (["method=sense", "verifier=greedy", "experiment=table3"], False),
        (["experiment=cross_domain", "method=sense", "datastore.path=null,store"], True),
        (["experiment=cross_domain", "method=sense", "datastore.path=store"], False),
        (["experiment=table3", "method=sense", "verifier=greedy", "limit=choice(2,4)"], True),
        (["experiment=smoke", "method=pld,rest"], False),
    ],
)
def test_a_sweep_needs_no_option_and_one_cell_of_it_is_a_run(
    words: list[str], is_sweep: bool
) -> None:
    assert configs.sweeps_by_itself(words) is is_sweep


def test_sweeps_are_not_swept_over() -> None:
    with pytest.raises(ValueError, match="runs alone, got table3, smoke; 'experiment="):
        configs.sweeps_by_itself(["experiment=table3,smoke"])


def test_an_unknown_experiment_is_told() -> None:
    with pytest.raises(HydraException, match="table33"):
        configs.sweeps_by_itself(["experiment=table33"])
    message = str(configs.unknown_choice(["experiment=[table33,full]"]))
    assert message.startswith("unknown experiment 'table33', did you mean 'table3'")


def test_a_word_takes_the_place_of_a_parameter(loader: ConfigLoader) -> None:
    params = {"method": "sense,se_only", "verifier": "soft_gated,greedy"}
    assert cells(["experiment=table3", "method=sense"], params, loader) == [
        "method=sense verifier=soft_gated experiment=table3",
        "method=sense verifier=greedy experiment=table3",
    ]


def test_a_pattern_stands_for_files(loader: ConfigLoader) -> None:
    assert cells(["method=glob(sense*)"], {}, loader) == ["method=sense", "method=sense_ood"]


@pytest.mark.parametrize(
    ("words", "is_sweep"),
    [
        (["experiment=table3"], True),
        (["-m", "method=pld"], True),
        (["method=pld", "--multirun"], True),
        (["method=pld"], False),
        (["experiment=table3", "--cfg", "job"], False),
        (["-m", "method=pld", "--cfg", "job"], False),
    ],
)
def test_the_program_knows_a_sweep(
    words: list[str], is_sweep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(configs.CONFIG_DIR.parent))
    program = pytest.importorskip("run")
    assert Path(sys.modules["run"].__file__ or "").name == "run.py"
    arguments, found = program.arguments_of(words)
    assert found is is_sweep
    assert not {"-m", "--multirun"} & set(arguments)
