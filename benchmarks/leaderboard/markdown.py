"""A leaderboard in GitHub's Markdown, in the order of Spec-Bench's columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.leaderboard.boards import Board, Leaderboard
from benchmarks.leaderboard.columns import EXPLANATION, Cell, text_table
from benchmarks.leaderboard.headings import (
    LEFT_OUT,
    TITLE,
    bullets,
    heading,
    sections,
    subheading,
)

MEDALS = ("🥇", "🥈", "🥉")
_SPECIAL = re.compile(r"([\\|*`<~])")


def to_markdown(leaderboard: Leaderboard) -> str:
    """The whole document."""
    blocks = [f"# {TITLE}"]
    for boards in sections(leaderboard):
        blocks += [
            f"## {escape(heading(boards[0]))}",
            "\n".join(f"- {name}: {escape(text)}" for name, text in bullets(boards[0])),
        ]
        for board in boards:
            blocks += [f"### {escape(subheading(board))}", *_table(board)]
    if leaderboard.boards:
        blocks.append(EXPLANATION)
    if leaderboard.left_out:
        lines = "\n".join(f"- {escape(str(item))}" for item in leaderboard.left_out)
        blocks += [f"## {LEFT_OUT}", lines]
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _table(board: Board) -> list[str]:
    table = text_table(board)
    align = ["---", *["---:"] * (len(table.header) - 1)]
    lines = [
        [_with_medal(cells[0], medal), *map(_cell, cells[1:])]
        for cells, medal in zip(table.lines, table.medals, strict=True)
    ]
    rows = [_line(row) for row in ([escape(title) for title in table.header], align, *lines)]
    notes = "\n".join(f"- {escape(note)}" for note in table.notes)
    return ["\n".join(rows), notes] if notes else ["\n".join(rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _with_medal(cell: Cell, medal: int | None) -> str:
    return _cell(cell) if medal is None else f"{MEDALS[medal - 1]} {_cell(cell)}"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f"**{text}**" if cell.is_best else text
