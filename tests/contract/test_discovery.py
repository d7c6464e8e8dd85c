"""Files, registered names, YAML files and exceptions belong together; there is no second list."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest
import yaml

from configs import CONFIG_DIR, choices
from contract import (
    every_component,
    method_checks,
    retriever_checks,
    tree_builder_checks,
    verifier_checks,
)
from contract.components import REGISTRIES, checks_of
from contract.expected_failures import (
    ACCEPTED_VALUES,
    EXPECTED_FAILURES,
    FIELD_VALUES,
    INERT_FIELDS,
)
from contract.methods import methods_under_test
from primitives.registry import Registry

NO_COMPONENT = {"retriever": {"none"}}
"""YAML files that name no component: `retriever=none` decodes without drafts."""

each_registry = pytest.mark.parametrize("registry", REGISTRIES, ids=lambda r: r.kind)


@each_registry
def test_every_file_holds_a_component(registry: Registry[Any]) -> None:
    package = importlib.import_module(registry.package)
    files = {f"{registry.package}.{m.name}" for m in pkgutil.iter_modules(package.__path__)}
    homes = {registry.get(name).__module__ for name in registry.names()}
    assert homes == files


@each_registry
def test_every_component_is_named_like_its_file(registry: Registry[Any]) -> None:
    for name in registry.names():
        assert registry.get(name).__module__.rpartition(".")[2] == name
        assert registry.get(name).name == name


@each_registry
def test_no_abstract_class_is_registered(registry: Registry[Any]) -> None:
    abstract = [name for name in registry.names() if inspect.isabstract(registry.get(name))]
    assert not abstract


@each_registry
def test_every_component_has_a_yaml_and_the_reverse(registry: Registry[Any]) -> None:
    assert set(choices(registry.kind)) == {
        *registry.names(),
        *NO_COMPONENT.get(registry.kind, set()),
    }


def test_none_names_no_retriever() -> None:
    text = (CONFIG_DIR / "retriever" / "none.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == {"name": None}


def test_names_are_unique_across_kinds() -> None:
    """Exceptions are filed under names alone."""
    names = [name for registry in REGISTRIES for name in registry.names()]
    assert len(set(names)) == len(names)


def test_exceptions_name_things_that_exist() -> None:
    fields = {
        name: {field.name for field in every_component.config_fields(registry.get(name))}
        for registry in REGISTRIES
        for name in registry.names()
    }
    subjects = {*fields, *(subject.name for subject in methods_under_test())}
    checks = {
        check.__name__
        for check in checks_of(
            every_component, retriever_checks, tree_builder_checks, verifier_checks, method_checks
        )
    }
    for name, entries in EXPECTED_FAILURES.items():
        assert name in subjects
        assert set(entries) <= checks
    for table in (INERT_FIELDS, FIELD_VALUES, ACCEPTED_VALUES):
        for name, entries in table.items():
            assert set(entries) <= fields[name]
