"""Finds the Python code in what a model answers.

Chat models put code into fenced blocks with prose around them, base models continue the prompt with
a function's body and then go on; either may be cut off by the budget.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence

_FENCED = re.compile(r"(`{3,})[^\n`]*\n(.*?)(?:\1|\Z)", re.DOTALL)
_TOP_LEVEL = re.compile(r"(?:from \w|import \w|def |async def |class |@)")


def find_definition(text: str, names: Sequence[str]) -> str | None:
    """Code that defines one of some functions or classes at its top level; None without any.

    The first fenced block that does, or the text itself if no block is fenced. Prose before it and
    whatever cannot be parsed behind it, such as a last statement that the budget cut off, are left
    out. If the definition itself cannot be parsed, it is returned as it is.

    Args:
        text: An answer.
        names: Names of which one must be defined.
    """
    text = text.replace("\r\n", "\n")
    defines = re.compile(
        rf"^(?:def|async def|class) +(?:{'|'.join(map(re.escape, names))})\b", re.M
    )
    blocks = fenced_blocks(text) or [text]
    code = next((block for block in blocks if defines.search(block)), None)
    if code is None:
        return None
    parts = (_valid_prefix(part) for part in _top_level_parts(code))
    return next((part for part in parts if defines.search(part)), code)


def fenced_blocks(text: str) -> list[str]:
    """The contents of the fenced blocks, dedented; the last one may lack its closing fence."""
    return [textwrap.dedent(match[2]) for match in _FENCED.finditer(text)]


def begins_indented(text: str) -> bool:
    """Whether an answer goes on with the body of a function, as a base model's does."""
    first_line = next((line for line in text.split("\n") if line.strip()), "")
    # One space in front may be the tokenizer's.
    return first_line.startswith(("  ", "\t")) and not fenced_blocks(text)


def continue_function(prompt: str, text: str) -> str | None:
    """A prompt that ends inside a function, with the body that an answer gives; None without one.

    The body is the first fenced block, or the text itself. Chat templates strip an answer, so that
    its first line or all of them may lack the indentation. What follows the body is left out.

    Args:
        prompt: Python code that may be followed by more lines of an indented body.
        text: An answer.
    """
    text = text.replace("\r\n", "\n")
    body = (fenced_blocks(text) or [text])[0].strip("\n").rstrip()
    if not body.strip():
        return None
    head = prompt.rstrip(" \t").rstrip("\n") + "\n"
    programs = (f"{head}{variant}\n" for variant in _indented(body))
    return next((program for program in programs if _is_valid(program)), None)


def _indented(body: str) -> Iterator[str]:
    """Readings of a body, the more faithful first."""
    if not body[0].isspace():
        yield textwrap.indent(body, "    ")
        body = f"    {body}"
    lines = body.split("\n")
    # A line without indentation ends a function.
    ends = (number for number, line in enumerate(lines) if line and not line[0].isspace())
    yield "\n".join(lines[: next(ends, len(lines))])


def _top_level_parts(code: str) -> Iterator[str]:
    """The code itself, then from each line on that begins a statement."""
    yield code
    lines = code.split("\n")
    for number, line in enumerate(lines):
        if _TOP_LEVEL.match(line):
            yield "\n".join(lines[number:])


def _valid_prefix(code: str) -> str:
    """The first top-level statements, up to the one that cannot be parsed."""
    lines = code.split("\n")
    while lines:
        error_line = _error_line("\n".join(lines))
        if error_line is None:
            break
        # Cutting inside a function would make another function of it.
        end = min(error_line, len(lines)) - 1
        while end > 0 and (not lines[end] or lines[end][0].isspace()):
            end -= 1
        del lines[end:]
    return "\n".join(lines)


def _is_valid(code: str) -> bool:
    return _error_line(code) is None


def _error_line(code: str) -> int | None:
    """The line, from 1, where the parser gives up, or None if it does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Odd escapes in strings are not our code's.
        try:
            # Not ast.parse, which lets pass what only the compiler refuses.
            compile(code, "<answer>", "exec", dont_inherit=True)
        except SyntaxError as error:
            return error.lineno or 1
        except (ValueError, RecursionError, MemoryError):  # Null bytes; nested too deeply.
            return 1
    return None


def called_names(code: str) -> list[str]:
    """Names of the functions and classes that some code calls by name.

    Raises:
        SyntaxError: If it cannot be parsed.
    """
    calls = (node.func for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    return list(dict.fromkeys(func.id for func in calls if isinstance(func, ast.Name)))
