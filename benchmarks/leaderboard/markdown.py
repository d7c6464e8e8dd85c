"""A leaderboard in GitHub's Markdown, in the order of Spec-Bench's columns."""

from __future__ import annotations

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
from benchmarks.markdown import escape, pipe_table

MEDALS = ("🥇", "🥈", "🥉")


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


def _table(board: Board) -> list[str]:
    table = text_table(board)
    lines = [
        [_with_medal(cells[0], medal), *map(_cell, cells[1:])]
        for cells, medal in zip(table.lines, table.medals, strict=True)
    ]
    rows = pipe_table([escape(title) for title in table.header], lines)
    notes = "\n".join(f"- {escape(note)}" for note in table.notes)
    return [rows, notes] if notes else [rows]


def _with_medal(cell: Cell, medal: int | None) -> str:
    return _cell(cell) if medal is None else f"{MEDALS[medal - 1]} {_cell(cell)}"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f"**{text}**" if cell.is_best else text
