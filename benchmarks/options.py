"""Checks of command-line options, for argparse's `type`: its own message names the option.

Each takes the text of an option, gives its value, and raises `argparse.ArgumentTypeError` with the
rule and what was found.
"""

from __future__ import annotations

import math
import os
import re
from argparse import ArgumentTypeError
from pathlib import Path

# A name that begins with a dot or a hyphen could leave its folder, or hide in it.
_NAME = r"\w[\w.+-]*"


def at_least_1(text: str) -> int:
    """A whole number ≥ 1.

    Raises:
        ArgumentTypeError: If it is anything else.
    """
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number ≥ 1, got {text!r}")
    return int(text)


def at_least_0(text: str) -> int:
    """A whole number ≥ 0.

    Raises:
        ArgumentTypeError: If it is anything else.
    """
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentTypeError(f"must be a whole number ≥ 0, got {text!r}")
    return int(text)


def number_at_least_0(text: str) -> float:
    """A finite number ≥ 0.

    Raises:
        ArgumentTypeError: If it is anything else.
    """
    return _number(text, least=0)


def number_at_least_1(text: str) -> float:
    """A finite number ≥ 1.

    Raises:
        ArgumentTypeError: If it is anything else.
    """
    return _number(text, least=1)


def plain_name(text: str) -> str:
    """A name of letters, digits and `_ . + -` that begins with a letter, a digit or `_`.

    Raises:
        ArgumentTypeError: If it is anything else.
    """
    return _matching(text, _NAME, "a name")


def model_name(text: str) -> str:
    """One plain name, or several with `/` between them, as `OWNER/NAME`.

    Raises:
        ArgumentTypeError: If it is anything else.
    """
    return _matching(text, rf"{_NAME}(/{_NAME})*", "a name or OWNER/NAME")


def output_file(text: str) -> Path:
    """A file that can be written: its folder exists, and it is no folder itself.

    Raises:
        ArgumentTypeError: If it cannot be written.
    """
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"must be a file, {path} is a folder")
    if not path.parent.is_dir():
        raise ArgumentTypeError(f"{path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise ArgumentTypeError(f"{path}: the folder {path.parent} cannot be written to")
    return path


def _number(text: str, *, least: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        raise ArgumentTypeError(f"must be a number ≥ {least}, got {text!r}")
    return value


def _matching(text: str, pattern: str, words: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ArgumentTypeError(
            f"must be {words} of letters, digits and _ . + -, the first a letter, a digit or _, "
            f"got {text!r}"
        )
    return text
