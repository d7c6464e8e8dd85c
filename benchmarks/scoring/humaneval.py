"""HumanEval: complete a function from its signature and docstring.

Source: Chen et al. 2021 (arXiv 2107.03374), section 2.2; repository openai/human-eval (MIT). Its
evaluation joins prompt, completion and tests; an answer that repeats the function follows the
prompt here, whose imports and helper functions it may use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scoring import SCORERS
from benchmarks.scoring.program_scorer import ProgramScorer, text_of
from benchmarks.scoring.python_code import (
    begins_indented,
    continue_function,
    find_definition,
)
from benchmarks.scoring.sandbox import Source


@SCORERS.register("humaneval")
@dataclass(frozen=True, kw_only=True)
class HumanEval(ProgramScorer):
    """Task data: `prompt`, `test` (it defines `check`) and `entry_point`, as in the dataset."""

    def _program(self, data: Mapping[str, Any], text: str) -> Sequence[Source] | None:
        prompt, entry_point = text_of(data, "prompt"), text_of(data, "entry_point")
        call = f"{text_of(data, 'test')}\ncheck({entry_point})\n"
        tests = Source(label="tests", text=call)
        # Base models write other functions behind the body, sometimes under the same name.
        code = None if begins_indented(text) else find_definition(text, [entry_point])
        if code is not None:
            answer = Source(label="answer", text=code)
            return [Source(label="prompt", text=prompt), answer, tests]
        continued = continue_function(prompt, text)
        # One function with the prompt, from whose first line its lines are counted then.
        return None if continued is None else [Source(label="answer", text=continued), tests]
