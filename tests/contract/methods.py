"""Which methods are checked, and how they are made."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from configs import choices, composed
from contract.components import (
    REGISTRIES,
    attach_toy_resources,
    attach_toy_verifier_resources,
    make,
    missing_requirements,
)
from methods.build import build_law, build_method
from methods.decoding import Method
from primitives.interfaces import Retriever, TreeBuilder, Verifier
from primitives.registry import TREE_BUILDERS
from support.toy import make_method

THOROUGH_VERIFIERS = ("greedy", "sampling", "soft_gated")
THOROUGH_RETRIEVERS = ("prompt_lookup", "semantic", "draft_model")
NUM_TURNS = 5
"""Of the other pairs, every fifth is made."""


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
    """What is checked: every configs/method/*.yaml, and every pair of primitives."""
    return [*_configured(), *_combined()]


def _configured() -> list[Subject]:
    return [Subject(name, functools.partial(_from_yaml, name)) for name in choices("method")]


@functools.cache
def _config(name: str) -> dict[str, Any]:
    return composed(f"method={name}", "model=toy")


def _from_yaml(name: str) -> Method:
    config = copy.deepcopy(_config(name))
    method = build_method(config, build_law(config))
    if method.retriever is not None:
        attach_toy_resources(method.retriever)
    attach_toy_verifier_resources(method.verifier)
    return method


def _combined() -> list[Subject]:
    """Each retriever with the verifiers that promise most, each verifier with a few retrievers,
    builders in turn; each verifier alone.

    What components hand each other has one shape for all, so that all pairs would add little; a
    mistake of a retriever shows with a verifier whose output is known. Components whose optional
    dependencies are missing are left out: their own checks say so.
    """
    retrievers, builders, verifiers = (
        [cls for cls in map(registry.get, registry.names()) if not missing_requirements(cls)]
        for registry in REGISTRIES
    )
    combinations = [
        (retriever, builders[(i + j) % len(builders)], verifier)
        for (i, retriever), (j, verifier) in itertools.product(
            enumerate(retrievers), enumerate(verifiers)
        )
        if retriever.proposal in verifier.valid_proposals
        and (
            verifier.name in THOROUGH_VERIFIERS
            or retriever.name in THOROUGH_RETRIEVERS
            or (i + j) % NUM_TURNS == 0
        )
    ]
    vanilla = [(None, TREE_BUILDERS.get("chain"), verifier) for verifier in verifiers]
    return [
        Subject(
            "-".join(cls.name if cls else "none" for cls in classes),
            functools.partial(_combine, *classes),
        )
        for classes in [*combinations, *vanilla]
    ]


def _combine(
    retriever: type[Retriever] | None, builder: type[TreeBuilder], verifier: type[Verifier]
) -> Method:
    return make_method(make(retriever) if retriever else None, make(builder), make(verifier))
