"""The contract of primitives, over everything that discovery finds."""

from __future__ import annotations

from typing import Any

import pytest

from contract import every_component, retriever_checks, tree_builder_checks, verifier_checks
from contract.components import Check, checks_of, class_params
from primitives.registry import RETRIEVERS, TREE_BUILDERS, VERIFIERS


@pytest.mark.parametrize(
    ("check", "cls"), class_params(RETRIEVERS, checks_of(every_component, retriever_checks))
)
def test_retriever(check: Check, cls: type[Any]) -> None:
    check(cls)


@pytest.mark.parametrize(
    ("check", "cls"), class_params(TREE_BUILDERS, checks_of(every_component, tree_builder_checks))
)
def test_tree_builder(check: Check, cls: type[Any]) -> None:
    check(cls)


@pytest.mark.parametrize(
    ("check", "cls"), class_params(VERIFIERS, checks_of(every_component, verifier_checks))
)
def test_verifier(check: Check, cls: type[Any]) -> None:
    check(cls)
