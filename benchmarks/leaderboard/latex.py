"""A leaderboard as LaTeX tables for a paper: one per board, without what only identifies a run."""

from __future__ import annotations

import re

import pandas as pd

from benchmarks.leaderboard.boards import Board, Leaderboard
from benchmarks.leaderboard.columns import Cell, text_table
from benchmarks.leaderboard.headings import caption

PREAMBLE = "% Needs \\usepackage{booktabs} and \\usepackage{graphicx}.\n"
_PLACES = ("1st", "2nd", "3rd")
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "✗": r"$\times$",
    "≈": r"$\approx$",
}
_SPECIAL = re.compile("|".join(map(re.escape, _ESCAPES)))
# A table keeps its size if it fits, and shrinks if it does not.
_FIT = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"


def to_latex(leaderboard: Leaderboard) -> str:
    """All tables, to be included into a document."""
    tables = [_table(board, number) for number, board in enumerate(leaderboard.boards, start=1)]
    return "\n".join([PREAMBLE, *tables])


def escape(text: str) -> str:
    """Text that LaTeX sets as it is, on one line."""
    one_line = " ".join(text.split())
    # In one pass: what one replacement inserts must not be replaced by another.
    return _SPECIAL.sub(lambda match: _ESCAPES[match.group()], one_line)


def _table(board: Board, number: int) -> str:
    table = text_table(board, is_short=True)
    frame = pd.DataFrame(
        [
            [_cell(cells[0]) + _place(medal), *map(_cell, cells[1:])]
            for cells, medal in zip(table.lines, table.medals, strict=True)
        ],
        columns=[escape(title) for title in table.header],
    )
    columns = "l" + "r" * (len(table.header) - 1)
    tabular = frame.style.hide(axis="index").to_latex(hrules=True, column_format=columns)
    notes = [rf"\par\footnotesize {escape(note)}" for note in table.notes]
    lines = [
        r"\begin{table*}",
        r"\centering\small",
        rf"\caption{{{escape(caption(board))}}}",
        rf"\label{{tab:leaderboard-{number}}}",
        _FIT,
        tabular.rstrip() + "}",
        *notes,
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _place(medal: int | None) -> str:
    return "" if medal is None else rf"\textsuperscript{{{_PLACES[medal - 1]}}}"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return rf"\textbf{{{text}}}" if cell.is_best else text
