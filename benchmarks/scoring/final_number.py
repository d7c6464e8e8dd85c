"""Numbers in texts: which one a text states as its answer, and whether two are the same."""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-−])?\$?"
    r"(\d+/\d+(?!\d)|(?:\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d+)?|(?<!\d)\.\d+)"
)
_MARK = re.compile(r"####[\s:*]*(?=[-−$\\.\d])")
"""Not the heading of a step: `#### Step 2`."""
_BOX = re.compile(r"\\boxed\s*\{")
_PHRASE = re.compile(r"\banswer\b[^.\n\d]{0,60}?(?:\bis\b|\bare\b|:|=)", re.IGNORECASE)


def final_number(text: str) -> str | None:
    r"""The number that a text states as its answer, normalised; None if it has none.

    The number after the last `####`, else after the last `\boxed{`, else after the last phrase like
    "the answer is" or "Answer:", else the last number of the text. After one of these, a number
    behind the line's last equals sign goes before its first one: "the answer is 2 * 3 = 6".
    """
    for pattern in (_MARK, _BOX, _PHRASE):
        for match in reversed(list(pattern.finditer(text))):
            number = _stated_number(text[match.end() :])
            if number is not None:
                return number
    numbers = _numbers(text)
    return numbers[-1] if numbers else None


def are_equal(first: str, second: str) -> bool:
    """Whether two normalised numbers are the same; a fraction equals only its own digits."""
    if "/" in first or "/" in second:
        return first == second
    return Decimal(first) == Decimal(second)


def _stated_number(rest: str) -> str | None:
    """The number of the line that follows a mark, or of the next line with something on it."""
    line = next((line for line in rest.splitlines() if line.strip(" \t*_$")), "")
    numbers = _numbers(line.rpartition("=")[2]) or _numbers(line)
    return numbers[0] if numbers else None


def _numbers(text: str) -> list[str]:
    """All numbers without currency signs and commas, the minus as ASCII."""
    plain = text.replace("{,}", ",").replace("\\$", "$").replace("\\,", "")
    return [_normalize(match) for match in _NUMBER.finditer(plain)]


def _normalize(match: re.Match[str]) -> str:
    digits = match[1].replace(",", "")
    return f"-{digits}" if match[0][0] in "-−" else digits
