"""A leaderboard as one HTML page: no scripts, nothing loaded, tables that scroll on a phone."""

from __future__ import annotations

from html import escape

import pandas as pd

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

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 90rem; padding: 0 1rem;
  overflow-wrap: anywhere; }
h2 { border-top: 1px solid #8886; margin-top: 2.5rem; padding-top: 1rem; }
.scroll { overflow-x: auto; overflow-wrap: normal; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #8884; padding: .3rem .6rem; text-align: right;
  white-space: nowrap; }
th { max-width: 7.5rem; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { background: Canvas; left: 0; position: sticky; text-align: left; }
@media (max-width: 40rem) { td:first-child { min-width: 7rem; white-space: normal; } }
ul { padding-left: 1.2rem; }
.notes { font-size: 13px; opacity: .8; }
.medal { border-radius: 50%; color: #000; display: inline-block; font-weight: bold; height: 1.4em;
  line-height: 1.4em; text-align: center; width: 1.4em; }
"""
# Numbers on coloured discs, since many machines have no font with emoji.
_COLOURS = ("#f2c230", "#c3c7cc", "#d99a5b")


def to_html(leaderboard: Leaderboard) -> str:
    """The whole page."""
    parts = [f"<h1>{TITLE}</h1>"]
    for boards in sections(leaderboard):
        parts.append(f"<h2>{escape(heading(boards[0]))}</h2>")
        parts.append(_list([f"{name}: {text}" for name, text in bullets(boards[0])]))
        for board in boards:
            parts += [f"<h3>{escape(subheading(board))}</h3>", *_table(board)]
    if leaderboard.boards:
        parts.append(f'<p class="notes">{escape(EXPLANATION)}</p>')
    if leaderboard.left_out:
        parts += [f"<h2>{LEFT_OUT}</h2>", _list([str(item) for item in leaderboard.left_out])]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{TITLE}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n"
        "</html>\n"
    )


def _table(board: Board) -> list[str]:
    table = text_table(board)
    frame = pd.DataFrame(
        [
            [_with_medal(cells[0], medal), *map(_cell, cells[1:])]
            for cells, medal in zip(table.lines, table.medals, strict=True)
        ],
        columns=[escape(title) for title in table.header],
    )
    text = frame.to_html(index=False, escape=False, border=0)
    parts = [f'<div class="scroll">\n{text}\n</div>']
    return [*parts, _list(table.notes, "notes")] if table.notes else parts


def _list(texts: list[str], kind: str = "facts") -> str:
    items = "\n".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="{kind}">\n{items}\n</ul>'


def _with_medal(cell: Cell, medal: int | None) -> str:
    if medal is None:
        return _cell(cell)
    colour = _COLOURS[medal - 1]
    return f'<span class="medal" style="background:{colour}">{medal}</span> {_cell(cell)}'


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f"<strong>{text}</strong>" if cell.is_best else text
