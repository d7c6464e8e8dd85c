"""Configuration values against the fields of a dataclass: errors that teach.

YAML and the command line know no types: `temperature=1` is an int, `limit=ten` a string. Types are
checked where objects are made from configuration, so that components may trust their fields; ranges
are checked by the components themselves, when they are made.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

Bound = int | float | None


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


def check_range(
    owner: Any,
    *names: str,
    least: Bound = None,
    above: Bound = None,
    most: Bound = None,
    below: Bound = None,
) -> None:
    """Refuses values outside a range; NaN is outside of every one.

    Args:
        owner: Whose fields these are.
        names: Numeric fields, checked in this order.
        least: Smallest value; give this or `above`.
        above: What values are greater than.
        most: Largest value; without it and `below` there is none.
        below: What values are less than; infinity asks for finite ones.

    Raises:
        ValueError: With the name, the range and the value.
    """
    for name in names:
        value = getattr(owner, name)
        is_large = value > above if least is None else value >= least
        is_small = value <= most if most is not None else below is None or value < below
        if not (is_large and is_small):
            raise ValueError(f"{name} must be {_range(least, above, most, below)}, got {value}")


def check_words(owner: Any) -> None:
    """Refuses values that the `Literal` annotations of a dataclass do not name.

    Raises:
        ValueError: With the name, the words and the value.
    """
    hints = typing.get_type_hints(type(owner))
    for field in dataclasses.fields(owner):
        hint = hints[field.name]
        if typing.get_origin(hint) is not typing.Literal:
            continue
        if not _fits(value := getattr(owner, field.name), hint):
            raise ValueError(f"{field.name} must be {_words(hint)}, got {value!r}")


def check_ngrams(owner: Any) -> None:
    """Refuses `min_ngram` below 1 and `max_ngram` below `min_ngram`.

    Raises:
        ValueError: With the names and values.
    """
    check_range(owner, "min_ngram", least=1)
    if owner.max_ngram < owner.min_ngram:
        raise ValueError(
            f"max_ngram must be ≥ min_ngram ({owner.min_ngram}), got {owner.max_ngram}"
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for near matches, or a full stop."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f", did you mean {' or '.join(map(repr, near))}?" if near else "."


def _range(least: Bound, above: Bound, most: Bound, below: Bound) -> str:
    """`≥ 1`, `> 0 and finite`, `in [1, 64]`, `in (0, 1]`."""
    if above == -math.inf:
        return "finite"
    if most is None and below in (None, math.inf):
        words = f"> {above}" if least is None else f"≥ {least}"
        return words if below is None else f"{words} and finite"
    low = f"({above}" if least is None else f"[{least}"
    high = f"{below})" if most is None else f"{most}]"
    return f"in {low}, {high}"


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
