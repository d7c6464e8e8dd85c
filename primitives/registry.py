"""One Registry class, an instance per kind; components are found by walking their package.

Adding a component is one Python file and one YAML file: there is no list to edit.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from primitives.fields import did_you_mean, typed_fields
from primitives.interfaces import Retriever, TreeBuilder, Verifier

Base = TypeVar("Base")
Class = TypeVar("Class", bound=type[Any])


class RegistryError(ValueError):
    """A name that does not exist, or a class that may not be registered."""


class Registry(Generic[Base]):
    """Name -> class, for one kind of component.

    Args:
        kind: The word for it in messages and in the command line, e.g. `retriever`.
        base: Registered classes must derive from it.
        package: Dotted name of the package whose modules hold the components.
    """

    def __init__(self, kind: str, base: Any, package: str) -> None:
        self.kind = kind
        self.base: type[Base] = base  # Any above: mypy refuses abstract classes as type[Base].
        self.package = package
        self._classes: dict[str, type[Base]] = {}
        self._is_discovered = False

    def register(self, name: str) -> Callable[[Class], Class]:
        """Class decorator, to be put above `@dataclass(kw_only=True)`.

        Raises:
            RegistryError: If the name is taken, the class has the wrong base, is not a dataclass,
                or takes a field by position.
        """

        def decorate(cls: Class) -> Class:
            self._check(name, cls)
            cls.name = name
            self._classes[name] = cls
            return cls

        return decorate

    def names(self) -> list[str]:
        """All registered names, sorted."""
        self._discover()
        return sorted(self._classes)

    def get(self, name: str) -> type[Base]:
        """The class of a name.

        Raises:
            RegistryError: If there is none; names near matches and lists all.
        """
        self._discover()
        if name not in self._classes:
            raise RegistryError(
                f"unknown {self.kind} '{name}'{did_you_mean(name, self._classes)} "
                f"There is: {', '.join(self.names())}"
            )
        return self._classes[name]

    def create(self, name: str, **fields: Any) -> Base:
        """An instance of a name, with the given fields.

        Raises:
            RegistryError: If the name does not exist.
            FieldError: If a field does not exist or has the wrong type.
            ValueError: If the component refuses a value.
        """
        cls = self.get(name)
        return cls(**typed_fields(cls, fields, f"{self.kind} '{name}'"))

    def _discover(self) -> None:
        if self._is_discovered:
            return
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        self._is_discovered = True

    def _check(self, name: str, cls: type[Any]) -> None:
        if not issubclass(cls, self.base):
            raise RegistryError(
                f"{self.kind} '{name}' must derive from {self.base.__name__}, "
                f"{cls.__name__} does not"
            )
        if not dataclasses.is_dataclass(cls):
            raise RegistryError(
                f"{self.kind} '{name}' must be a dataclass: its fields are its config"
            )
        if any(field.init and not field.kw_only for field in dataclasses.fields(cls)):
            raise RegistryError(f"{self.kind} '{name}' must be a keyword-only dataclass")
        if name in self._classes:
            raise RegistryError(
                f"{self.kind} '{name}' is registered twice: "
                f"{_origin(self._classes[name])} and {_origin(cls)}"
            )


def _origin(cls: type[Any]) -> str:
    return f"{inspect.getsourcefile(cls)} ({cls.__qualname__})"


RETRIEVERS: Registry[Retriever] = Registry(
    "retriever",
    Retriever,
    "primitives.retrievers",
)
TREE_BUILDERS: Registry[TreeBuilder] = Registry(
    "tree_builder",
    TreeBuilder,
    "primitives.tree_builders",
)
VERIFIERS: Registry[Verifier] = Registry(
    "verifier",
    Verifier,
    "primitives.verifiers",
)
