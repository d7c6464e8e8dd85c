"""Which methods are checked, and how they are made."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from support.toy import make_method

from configs import CONFIG_DIR, choices
from methods.build import build_law, build_method
from methods.decoding import Method
from primitives.interfaces import Verifier
from primitives.registry import RETRIEVERS, TREE_BUILDERS, VERIFIERS


@dataclass(frozen=True)
class Subject:
    """A method under test.

    Attributes:
        name: Its id.
        make: Gives a fresh one.
    """

    name: str
    make: Callable[[], Method]

    @property
    def verifier(self) -> Verifier:
        return self.make().verifier

    @property
    def is_vanilla(self) -> bool:
        return self.make().retriever is None


def methods_under_test() -> list[Subject]:
    """What is checked: every configs/method/*.yaml, and every combination of primitives."""
    return [*_configured(), *_combined()]


def _configured() -> list[Subject]:
    return [Subject(name, functools.partial(_from_yaml, name)) for name in choices("method")]


def _from_yaml(name: str) -> Method:
    config = _composed(name)
    return build_method(config, build_law(config))


@functools.cache
def _composed(name: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        config = compose("config", overrides=[f"method={name}", "model=toy"])
    return OmegaConf.to_container(config, resolve=True)


def _combined() -> list[Subject]:
    """Each retriever with each builder and verifier that its tags allow; each verifier alone."""
    drafting = itertools.product(RETRIEVERS.names(), TREE_BUILDERS.names(), VERIFIERS.names())
    combinations = [
        (retriever, builder, verifier)
        for retriever, builder, verifier in drafting
        if RETRIEVERS.get(retriever).proposal in VERIFIERS.get(verifier).valid_proposals
    ]
    return [
        Subject("-".join(map(str, names)), functools.partial(_combine, *names))
        for names in [*combinations, *((None, "chain", name) for name in VERIFIERS.names())]
    ]


def _combine(retriever: str | None, builder: str, verifier: str) -> Method:
    return make_method(
        RETRIEVERS.create(retriever) if retriever else None,
        TREE_BUILDERS.create(builder),
        VERIFIERS.create(verifier),
    )
