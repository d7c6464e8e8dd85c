"""Hydra configuration groups, one folder each. Only `run.py`, scripts and tests read them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

from primitives.fields import did_you_mean

CONFIG_DIR = Path(__file__).parent
PRIMITIVE_GROUPS = ("retriever", "tree_builder", "verifier")
DATASTORE = "datastore"
MAY_BE_NULL = ("experiment", "debug")
EXPERIMENT = "experiment="


def composed(*overrides: str) -> dict[str, Any]:
    """The resolved configuration that `run.py` would get from these overrides.

    Raises:
        HydraException: If a choice or a key does not exist.
        OmegaConfBaseException: If a value is missing or cannot be resolved.
    """
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        config = compose("config", overrides=list(overrides), return_hydra_config=True)
    chosen = dict(config.hydra.runtime.choices)
    with open_dict(config):
        del config["hydra"]
    drop_own_settings(config, chosen, overrides)
    plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    return dict(plain)


def with_defaults(overrides: Sequence[str], defaults: Sequence[str]) -> list[str]:
    """The overrides, behind those defaults whose keys they leave open."""
    given = {word.partition("=")[0] for word in overrides}
    return [*(word for word in defaults if word.partition("=")[0] not in given), *overrides]


def experiments(words: Sequence[str]) -> list[list[str]]:
    """The experiments that a command line chooses.

    Args:
        words: Words of a command line.

    Returns:
        The files of each choice, in order: `[[a]]` of `experiment=a`, `[[a, b]]` of
        `experiment=[a,b]`, `[[a], [b]]` of `experiment=a,b`; empty if there is none.

    Raises:
        HydraException: If the word cannot be read.
    """
    chosen = [word for word in words if word.startswith(EXPERIMENT)]
    if not chosen:
        return []
    override = OverridesParser.create().parse_override(chosen[-1])
    values = override.sweep_iterator() if override.is_sweep_override() else [override.value()]
    selections = [value if isinstance(value, list) else [value] for value in values]
    return [[str(name) for name in names] for names in selections if names[0]]


def sweeps_by_itself(words: Sequence[str]) -> bool:
    """Whether an experiment makes a command line a sweep, with no `-m`.

    It does if it names values (`hydra.sweeper.params`), unless the command line sets each of
    those keys and no word of it has several values: the command of one cell is a single run.

    Args:
        words: Overrides of a command line.

    Raises:
        HydraException: If an experiment does not exist, or a word cannot be read.
        ValueError: If an experiment that is a sweep is one of several to be swept over.
    """
    choices = experiments(words)
    params = [_sweeper_params(names) for names in choices]
    if len(choices) > 1 and any(params):
        names = ", ".join("+".join(choice) for choice in choices)
        raise ValueError(
            f"an experiment that is a sweep runs alone, got {names}; 'experiment=[a,b]' puts "
            "several into one"
        )
    keys = {key for one in params for key in one}
    overrides = OverridesParser.create().parse_overrides(list(words)) if keys else []
    missing = keys - {override.get_key_element().lstrip("+") for override in overrides}
    return bool(missing) or any(override.is_sweep_override() for override in overrides)


def _sweeper_params(names: Sequence[str]) -> dict[str, Any]:
    """Values by key that some experiments name together."""
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        word = f"{EXPERIMENT}[{','.join(names)}]"
        config = compose("config", overrides=[word], return_hydra_config=True)
    return dict(config.hydra.sweeper.params or {})


def groups() -> list[str]:
    """Names of the groups; `hydra` is not one of ours."""
    folders = (path.name for path in CONFIG_DIR.iterdir() if any(path.glob("*.yaml")))
    return sorted(folders)


def choices(group: str) -> list[str]:
    """Names of a group's files; those with a leading underscore are bases, not choices."""
    names = (path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))
    return sorted(name for name in names if not name.startswith("_"))


def unknown_choice(overrides: Sequence[str]) -> str | None:
    """A message for the first `group=name` whose name does not exist; None if all do.

    Hydra's own message lists the choices, but not the nearest one.
    """
    for override in overrides:
        group, is_assignment, value = override.partition("=")
        # Anything but plain names (glob(*), choice(...), interpolations) is Hydra's business.
        is_plain = re.fullmatch(r"[\w.,+-]+|\[[\w.,+-]+\]", value) is not None
        if not (is_assignment and is_plain and group in groups()):
            continue
        for name in value.strip("[]").split(","):
            is_left_out = name == "null" and group in MAY_BE_NULL
            if is_left_out or name == "" or name in choices(group):
                continue
            hint = did_you_mean(name, choices(group))
            return f"unknown {group} '{name}'{hint} There is: {', '.join(choices(group))}"
    return None


def swapped_primitives(method: str, chosen: Mapping[str, str]) -> list[str]:
    """Primitives that replace a method's own, in the order of `PRIMITIVE_GROUPS`.

    They become part of its label: `method=pld tree_builder=trie` is filed as `pld+trie`.

    Args:
        method: Name of the method's file.
        chosen: What the composed configuration took from each group.
    """
    own = _own_choices(method)
    return [chosen[group] for group in PRIMITIVE_GROUPS if chosen[group] != own.get(group)]


def drop_own_settings(
    config: DictConfig, chosen: Mapping[str, str], overrides: Sequence[str]
) -> None:
    """Takes back what a method's file sets of a component that is swapped for another one.

    `method=rest` sets `tree_builder.select` of its trie, which `tree_builder=best_first` does not
    have. Where the other one has a field of that name, its own default counts. A datastore that is
    swapped keeps what both kinds have, such as its source. What the user or an experiment sets
    stays.

    Args:
        config: Composed, not resolved; changed in place.
        chosen: What it took from each group.
        overrides: The user's.
    """
    own, settings = _own_choices(chosen["method"]), _method_file(chosen["method"])
    given = {word.lstrip("+").partition("=")[0] for word in overrides}
    for group in (*PRIMITIVE_GROUPS, DATASTORE):
        if chosen[group] == own.get(group):
            continue
        defaults = OmegaConf.load(CONFIG_DIR / group / f"{chosen[group]}.yaml")
        for key, value in (settings.get(group) or {}).items():
            known = OmegaConf.to_container(config[group]).get(key)  # type: ignore[union-attr]
            if f"{group}.{key}" in given or known != value:
                continue
            with open_dict(config):
                if key not in defaults:
                    del config[group][key]
                elif group != DATASTORE:
                    config[group][key] = defaults[key]


def _own_choices(method: str) -> dict[str, str]:
    """What a method's file takes from each group."""
    entries = [pair for entry in _method_file(method)["defaults"] for pair in entry.items()]
    return {key.removeprefix("override /"): value for key, value in entries}


def _method_file(method: str) -> dict[str, Any]:
    return dict(yaml.safe_load((CONFIG_DIR / "method" / f"{method}.yaml").read_text()))
