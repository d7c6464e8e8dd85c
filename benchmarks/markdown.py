"""Tables and text in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_SPECIAL = re.compile(r"([\\|*`<~])")
_BARE_PIPE = re.compile(r"(?<!\\)\|")


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def pipe_table(
    heads: Sequence[str], lines: Sequence[Sequence[str]], *, left: Collection[int] = (0,)
) -> str:
    """A table, without a line end behind it.

    Args:
        heads: Of its columns.
        lines: Its other lines, of as many cells; Markdown, in which a `|` need not be escaped.
        left: Places of the columns that stand left; the others stand right, as numbers do.
    """
    align = ["---" if place in left else "---:" for place in range(len(heads))]
    return "\n".join(_line(cells) for cells in (heads, align, *lines))


def _line(cells: Sequence[str]) -> str:
    texts = (_BARE_PIPE.sub(r"\\|", cell) for cell in cells)
    return f"| {' | '.join(texts)} |"
