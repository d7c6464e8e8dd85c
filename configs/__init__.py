"""Hydra configuration groups, one folder each. Only `run.py`, scripts and tests read them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from primitives.fields import did_you_mean

CONFIG_DIR = Path(__file__).parent
PRIMITIVE_GROUPS = ("retriever", "tree_builder", "verifier")


def composed(*overrides: str) -> dict[str, Any]:
    """The resolved configuration that `run.py` would get from these overrides.

    Raises:
        HydraException: If a choice or a key does not exist.
        OmegaConfBaseException: If a value is missing or cannot be resolved.
    """
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        config = compose("config", overrides=list(overrides))
    plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    return dict(plain)


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
        is_plain = re.fullmatch(r"[\w.,+-]+", value) is not None
        if not (is_assignment and is_plain and group in groups()):
            continue
        for name in value.split(","):
            if name in ("null", "") or name in choices(group):
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
    entries = yaml.safe_load((CONFIG_DIR / "method" / f"{method}.yaml").read_text())["defaults"]
    own = {key: value for entry in entries for key, value in entry.items()}
    return [
        chosen[group]
        for group in PRIMITIVE_GROUPS
        if chosen[group] != own.get(f"override /{group}")
    ]
