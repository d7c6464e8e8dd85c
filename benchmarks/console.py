"""Where scripts print, and how their tables look."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 100
"""Columns where stdout is no terminal."""


def plain_console() -> Console:
    """Stdout, in plain text where it is no terminal."""
    # Names come from users' files: they are no markup. A narrow terminal breaks lines itself.
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(width=WIDTH, no_color=True, markup=False, highlight=False)
    console.width = max(console.width, WIDTH)
    return console


def new_table(*columns: str, may_wrap: Sequence[str] = ()) -> Table:
    """An empty table in the project's style: the first column is a name, the others numbers.

    Args:
        columns: Their heads.
        may_wrap: Those whose words may be broken into lines; if there are none, names may.
    """
    table = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        header_style="bold",
        pad_edge=False,
        show_edge=False,
    )
    for place, column in enumerate(columns):
        is_text = column in may_wrap
        table.add_column(
            column,
            justify="right" if place and not is_text else "left",
            no_wrap=not is_text if may_wrap else place > 0,
            overflow="fold",
        )
    return table
