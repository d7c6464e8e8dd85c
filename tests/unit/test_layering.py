"""Who may import whom, read off the source of every file.

random_source <- types <- interfaces <- registry <- primitives/* <- methods <- benchmarks <- scripts
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("primitives", "methods", "benchmarks", "configs", "hydra_plugins", "scripts", "run")

BASE = ("primitives.types", "primitives.random_source")
PRIMITIVE = (
    *BASE,
    "primitives.fields",
    "primitives.interfaces",
    "primitives.registry",
    "primitives.structures",
)
ALLOWED: dict[str, tuple[str, ...]] = {
    "primitives.types": ("primitives.random_source",),
    "primitives.random_source": (),
    "primitives.interfaces": BASE,
    "primitives.fields": (),
    "primitives.registry": (*BASE, "primitives.interfaces", "primitives.fields"),
    "primitives.structures": (*BASE, "primitives.structures"),
    "primitives.retrievers": PRIMITIVE,
    "primitives.tree_builders": PRIMITIVE,
    "primitives.verifiers": PRIMITIVE,
    "primitives": (),
    "methods": ("primitives", "methods"),
    "benchmarks": ("primitives", "methods", "benchmarks"),
    "configs": ("configs", "primitives.fields"),
    "configs.sweep_cells": ("benchmarks.outcomes",),
    "hydra_plugins": ("hydra_plugins", "benchmarks.outcomes", "benchmarks.sweeps"),
}
"""What a module or package may import of the project; the longest matching entry counts."""

CONFIGURATION = ("hydra", "omegaconf")
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "primitives": (*CONFIGURATION, "transformers", "time", "logging", "wandb"),
    "methods": (*CONFIGURATION, "time", "wandb"),
    "benchmarks": CONFIGURATION,
}
"""What a package may not import of the outside world: it has no configuration and no clock."""


REGISTRIES = ("RETRIEVERS", "TREE_BUILDERS", "VERIFIERS")
READERS = {
    "methods.build": "turns configuration into components",
}
"""Who looks components up, and why; primitives only register themselves."""


def sources() -> list[Path]:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return sorted([*files, *ROOT.glob("run.py")])


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    """Dotted names, those inside functions and behind TYPE_CHECKING included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def rule_for(module: str) -> str | None:
    return max((key for key in ALLOWED if is_within(module, key)), key=len, default=None)


def within_any(name: str, packages: tuple[str, ...]) -> bool:
    return any(is_within(name, package) for package in packages)


each_source = pytest.mark.parametrize("path", sources(), ids=module_of)


@each_source
def test_imports_point_downwards(path: Path) -> None:
    rule = rule_for(module_of(path))
    if rule is None:  # run.py and scripts stand on top.
        return
    for name in imports_of(path):
        assert not within_any(name, PACKAGES) or within_any(name, ALLOWED[rule]), (
            f"{module_of(path)} imports {name}; it may import {ALLOWED[rule] or 'nothing of these'}"
        )


@each_source
def test_no_import_of_the_outside_world_where_it_does_not_belong(path: Path) -> None:
    module = module_of(path)
    forbidden = FORBIDDEN.get(module.split(".")[0], ())
    assert not [name for name in imports_of(path) if within_any(name, forbidden)]


def test_only_build_reads_the_registries() -> None:
    readers = {
        module_of(path)
        for path in sources()
        if imports_of(path) & {f"primitives.registry.{name}" for name in REGISTRIES}
    }
    assert {module for module in readers if not is_within(module, "primitives")} == set(READERS)


def test_rules_see_what_they_should() -> None:
    """The helpers above on made-up names: a rule that never fires would pass every file."""
    assert rule_for("primitives.retrievers.prompt_lookup") == "primitives.retrievers"
    assert rule_for("primitives.random_source") == "primitives.random_source"
    assert rule_for("run") is None
    assert not within_any("primitives.retrievers.other", ALLOWED["primitives.retrievers"])
    assert not within_any("methods.decoding", ALLOWED["primitives.verifiers"])
    assert within_any("primitives.structures.tree_walk", ALLOWED["primitives.verifiers"])
    assert not is_within("methods_extra", "methods")
    assert len(sources()) > 20
