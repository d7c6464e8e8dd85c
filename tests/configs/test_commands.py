"""Commands in the README and in configurations can be built; primitives can be swapped."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

import configs
from configs.sweep_cells import cells
from methods.build import build_law, build_method
from primitives.registry import RETRIEVERS
from primitives.types import Context

ROOT = configs.CONFIG_DIR.parent
README = ROOT / "README.md"
PLACES = [README, *sorted(configs.CONFIG_DIR.rglob("*.yaml"))]
COMMAND = re.compile(r"(?:# +| {4})(?:python|torchrun [^.]*) ?run\.py (.*)")


def commands(place: Path) -> Iterator[list[str]]:
    """The words of each command that stands on lines of its own."""
    lines = iter(place.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if (match := COMMAND.fullmatch(line)) is None:
            continue
        text = match[1]
        while text.endswith("\\"):
            text = text[:-1] + next(lines).lstrip("# ")
        yield [word for word in shlex.split(text, comments=True) if word != "-m"]


ALL = [(str(place.relative_to(ROOT)), words) for place in PLACES for words in commands(place)]
RUNS = [(place, words) for place, words in ALL if not any(w.startswith("--") for w in words)]


def first_and_last(words: list[str]) -> list[list[str]]:
    """Overrides of these cells of a sweep, or of the one run."""
    with initialize_config_dir(str(configs.CONFIG_DIR), version_base="1.3"):
        chosen = [word for word in words if word.startswith(configs.EXPERIMENT)]
        config = compose("config", overrides=chosen, return_hydra_config=True)
        params = config.hydra.sweeper.params or {}
        found = cells(words, params, GlobalHydra.instance().config_loader())
    return [shlex.split(label) for label in dict.fromkeys((found[0], found[-1]))]


def test_commands_are_found() -> None:
    assert len(RUNS) > 60
    assert ["method=pld", "debug=toy"] in [words for _, words in RUNS]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [words for _, words in RUNS], ids=[f"{place}:{words[0]}" for place, words in RUNS]
)
def test_every_command_can_be_built(words: list[str]) -> None:
    own = [word for word in words if not word.startswith("hydra")]
    assert configs.unknown_choice(own) is None
    for overrides in first_and_last(own):
        config = configs.composed(*overrides)
        build_method(config, build_law(config))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rest", "crest", "rest_soft"])
@pytest.mark.parametrize("builder", configs.choices("tree_builder"))
def test_builders_can_be_swapped_where_a_method_sets_one_up(method: str, builder: str) -> None:
    config = configs.composed(f"method={method}", f"tree_builder={builder}")
    build_method(config, build_law(config))
    assert config["tree_builder"].get("select") == ("frequency" if builder == "trie" else None)


def test_a_swapped_component_has_its_own_defaults() -> None:
    words = ("method=rasd", "retriever=prompt_lookup", "draft_model=none")
    assert configs.composed(*words)["retriever"] == {
        "name": "prompt_lookup", "max_ngram": 3, "min_ngram": 1, "num_tokens": 10,
        "match": "first", "allow_short": True,
    }  # fmt: skip
    own = configs.composed("method=rasd")["retriever"]
    assert (own["name"], own["rule"]) == ("hybrid", "fuse")


def test_what_the_user_sets_of_a_swapped_component_stays() -> None:
    words = ("method=rest", "tree_builder=chain", "tree_builder.select=frequency")
    config = configs.composed(*words)
    with pytest.raises(ValueError, match="select"):
        build_method(config, build_law(config))


def test_a_swapped_datastore_keeps_its_source() -> None:
    words = ("method=dresd", "retriever=suffix_array", "datastore=tokens")
    store = configs.composed(*words)["datastore"]
    assert (store["kind"], store["source"]) == ("tokens", "generated")
    assert "positions" not in store


def test_the_primitive_of_the_readme_works(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    module: Any = ModuleType("primitives.retrievers.repeat_last")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code.replace('@RETRIEVERS.register("repeat_last")\n', ""), vars(module))
    retriever = module.RepeatLast(num_tokens=2)
    context = Context(ids_with_pending=np.array([4, 7]), num_prompt_tokens=1, vocab_size=9)
    (candidate,) = retriever.propose(context, 1)
    assert candidate.token_ids == (7, 7, 7)
    assert "repeat_last" not in RETRIEVERS.names()
