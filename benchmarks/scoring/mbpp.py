"""MBPP: write a function for a description in one sentence, with a few assertions as its tests.

Source: Austin et al. 2021 (arXiv 2108.07732), section 2.1; repository google-research/mbpp
(CC-BY-4.0).
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scoring import SCORERS
from benchmarks.scoring.program_scorer import ProgramScorer, text_of
from benchmarks.scoring.python_code import called_names, find_definition
from benchmarks.scoring.sandbox import Source


@SCORERS.register("mbpp")
@dataclass(frozen=True, kw_only=True)
class Mbpp(ProgramScorer):
    """Task data: `setup`, code that may be empty, and `tests`, a list of assertions.

    The names that tests call tell what an answer has to define. The setup runs behind the answer,
    since that of the dataset makes objects of the answer's classes.
    """

    def _program(self, data: Mapping[str, Any], text: str) -> Sequence[Source] | None:
        setup, tests = text_of(data, "setup"), _tests(data)
        code = find_definition(text, _names(tests))
        if code is None:
            return None
        parts = (("answer", code), ("setup", setup), ("tests", tests))
        return [Source(label=label, text=part) for label, part in parts]


def _tests(data: Mapping[str, Any]) -> str:
    tests = data.get("tests")
    if not isinstance(tests, list | tuple) or not tests:
        raise ValueError(f"task.data['tests'] must be a list of assertions, got {tests!r}")
    if not all(isinstance(test, str) for test in tests):
        raise ValueError(f"task.data['tests'] must hold texts only, got {tests!r}")
    return "\n".join(tests) + "\n"


def _names(tests: str) -> list[str]:
    try:
        names = called_names(tests)
    except SyntaxError as error:
        raise ValueError(f"task.data['tests'] must be Python code: {error}") from error
    if not names:
        raise ValueError(f"task.data['tests'] must call a function by its name, got {tests!r}")
    # A few tasks ask for a function named like a built-in one.
    return [name for name in names if not hasattr(builtins, name)] or names
