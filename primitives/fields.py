"""Configuration values against the annotated fields of a dataclass: errors that teach.

YAML and the command line know no types: `temperature=1` is an int, `limit=ten` a string. Values are
checked where objects are made from configuration, so that components may trust their fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any


class FieldError(ValueError):
    """A field that does not exist, or a value of the wrong type."""


def typed_fields(cls: type[Any], values: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The values, ints turned into floats where the field is a float or a list of floats.

    Args:
        cls: The dataclass to be made from them.
        values: By field name.
        owner: What the fields belong to, for messages, e.g. `retriever 'prompt_lookup'`.

    Raises:
        FieldError: If a name is no field, or a value does not fit its annotation.
    """
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    hints = typing.get_type_hints(cls)
    typed = {}
    for name, value in values.items():
        if name not in known:
            raise FieldError(
                f"{owner} has no field '{name}'{did_you_mean(name, known)} "
                f"It has: {', '.join(known) or 'no fields'}"
            )
        if not _fits(value, hints[name]):
            raise FieldError(f"{name} of {owner} must be {_words(hints[name])}, got {value!r}")
        typed[name] = _typed(value, hints[name])
    return typed


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for near matches, or a full stop."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f", did you mean {' or '.join(map(repr, near))}?" if near else "."


def _typed(value: Any, hint: Any) -> Any:
    """A value that fits its annotation, as a float where that asks for one."""
    if hint is float:
        return float(value)
    if typing.get_origin(hint) is list:
        (item_hint,) = typing.get_args(hint)
        return [_typed(item, item_hint) for item in value]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        # An int fits a float as well: where both may stand, it stays what it is.
        fitting = [option for option in typing.get_args(hint) if _fits(value, option)]
        return value if int in fitting else _typed(value, fitting[0])
    return value


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return any(value == word and type(value) is type(word) for word in typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if origin is list:
        (item_hint,) = typing.get_args(hint)
        return isinstance(value, list) and all(_fits(item, item_hint) for item in value)
    if hint is Any:
        return True
    if hint in (int, float):  # A bool is an int to Python, but hardly to whoever wrote `true`.
        is_number = isinstance(value, int) or (hint is float and isinstance(value, float))
        return is_number and not isinstance(value, bool)
    expected = origin or hint
    return isinstance(value, expected) if isinstance(expected, type) else True


def _words(hint: Any) -> str:
    """The annotation as a user would say it."""
    if typing.get_origin(hint) is typing.Literal:
        return " | ".join(str(word) for word in typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " | ".join(_words(option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is list:
        return f"a list, each item {_words(*typing.get_args(hint))}"
    if typing.get_origin(hint) in (dict, Mapping):
        return "a mapping"
    if hint is type(None):
        return "null"
    return {"int": "an int", "float": "a number", "bool": "true | false", "str": "text"}.get(
        getattr(hint, "__name__", ""), str(hint)
    )
