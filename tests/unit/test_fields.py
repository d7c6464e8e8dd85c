"""Values from YAML and the command line against annotated fields."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from primitives.fields import (
    FieldError,
    check_ngrams,
    check_range,
    check_words,
    typed_fields,
)


@dataclass(kw_only=True)
class Options:
    count: int = 1
    share: float = 0.5
    is_on: bool = False
    word: Literal["first", "last"] = "first"
    mode: Literal["auto"] | bool = "auto"
    label: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    shares: list[float] | None = None
    parts: list[dict[str, Any]] = field(default_factory=list)


@pytest.mark.parametrize(
    "values",
    [
        {"count": 3, "share": 0.1, "is_on": True, "word": "last", "label": None},
        {"label": "x", "extra": {"a": 1}, "mode": False},
        {"mode": "auto"},
        {"shares": [0.5, 1.0], "parts": [{"name": "a"}, {}]},
        {"shares": None, "parts": []},
        {},
    ],
)
def test_values_that_fit_pass_unchanged(values: dict[str, Any]) -> None:
    assert typed_fields(Options, values, "it") == values


def test_an_int_for_a_float_becomes_one() -> None:
    typed = typed_fields(Options, {"share": 1}, "it")
    assert typed == {"share": 1.0}
    assert type(typed["share"]) is float


def test_ints_in_a_list_of_floats_become_floats() -> None:
    (shares,) = typed_fields(Options, {"shares": [1, 0.5]}, "it").values()
    assert shares == [1.0, 0.5]
    assert [type(share) for share in shares] == [float, float]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 2.5}, "count of it must be an int, got 2.5"),
        ({"count": True}, "count of it must be an int, got True"),
        ({"count": None}, "count of it must be an int, got None"),
        ({"share": "half"}, "share of it must be a number, got 'half'"),
        ({"is_on": 1}, r"is_on of it must be true \| false, got 1"),
        ({"word": "middle"}, r"word of it must be first \| last, got 'middle'"),
        ({"mode": 1}, r"mode of it must be auto \| true \| false, got 1"),
        ({"label": 3}, r"label of it must be text \| null, got 3"),
        ({"extra": []}, r"extra of it must be a mapping, got \[\]"),
        (
            {"shares": [0.5, "x"]},
            r"shares of it must be a list, each item a number \| null, got \[0.5, 'x'\]",
        ),
        ({"shares": 0.5}, "shares of it must be a list, each item a number .*, got 0.5"),
        ({"parts": ["a"]}, r"parts of it must be a list, each item a mapping, got \['a'\]"),
        ({"parts": {"a": 1}}, "parts of it must be a list, each item a mapping, got {'a': 1}"),
        ({"cuont": 1}, r"it has no field 'cuont', did you mean 'count'\? It has: count, share"),
    ],
)
def test_values_that_do_not_fit_are_told(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        typed_fields(Options, values, "it")


@dataclass
class Ranges:
    count: float = 1
    share: float = 0.5
    word: Literal["first", "last"] = "first"
    min_ngram: int = 1
    max_ngram: int = 3


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        ({"least": 1}, [1, 10**9], [0], "≥ 1"),
        ({"above": 0}, [0.1, math.inf], [0, math.nan], "> 0"),
        ({"least": 0, "below": math.inf}, [0, 5.5], [math.inf, -1], "≥ 0 and finite"),
        ({"above": -math.inf, "below": math.inf}, [-3.0], [-math.inf, math.nan], "finite"),
        ({"least": 1, "most": 64}, [1, 64], [0, 65], "in [1, 64]"),
        ({"above": 0, "most": 1}, [0.1, 1], [0, 1.1, math.nan], "in (0, 1]"),
        ({"least": 0, "below": 1}, [0, 0.9], [1, math.nan], "in [0, 1)"),
    ],
)
def test_ranges(
    bounds: dict[str, float], inside: list[float], outside: list[float], words: str
) -> None:
    for value in inside:
        check_range(Ranges(count=value, share=value), "count", "share", **bounds)
    for value in outside:
        message = f"share must be {words}, got {value}"
        with pytest.raises(ValueError, match=re.escape(message)):
            check_range(Ranges(share=value), "share", **bounds)


def test_words_are_those_of_the_annotation() -> None:
    check_words(Ranges(word="last"))
    with pytest.raises(ValueError, match=r"word must be first \| last, got 'middle'"):
        check_words(Ranges(word="middle"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shortest", "longest", "message"),
    [
        (0, 3, "min_ngram must be ≥ 1, got 0"),
        (2, 1, r"max_ngram must be ≥ min_ngram \(2\), got 1"),
    ],
)
def test_ngrams(shortest: int, longest: int, message: str) -> None:
    check_ngrams(Ranges(min_ngram=2, max_ngram=2))
    with pytest.raises(ValueError, match=message):
        check_ngrams(Ranges(min_ngram=shortest, max_ngram=longest))
