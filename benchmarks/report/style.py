"""How figures look: colours for colour-blind readers, and a second mark beside each colour.

Source of the colours: Okabe and Ito 2008, Color Universal Design.
"""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#1b1b1f"
FAINT = "#a3a3ad"
"""Text and lines; a page may put its own colours in their place."""

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B6B76", INK,
)  # fmt: skip
"""Grey stands for their yellow, which is hard to see on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
HATCHES = ("///", "\\\\\\", "", "---", "xxx", "|||", "+++")

WIDTH = 7.2
"""Of a figure, in inches."""
DPI = 200

RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica", "sans-serif"],
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": FAINT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "sd-primitives",
    "pdf.fonttype": 42,
    # Names come from users: a dollar sign in one is no formula.
    "text.parse_math": False,
}
_ID = re.compile(r"""(\bid="|url\(#|href="#)""")


def colour(number: int) -> str:
    """Colour of a run; ink for vanilla, whose number is -1."""
    return INK if number < 0 else COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """Marker of a run; with its colour no two of the first 72 are alike."""
    return "*" if number < 0 else MARKERS[number % len(MARKERS)]


def dashes(number: int) -> Any:
    """Line style of a run."""
    return DASHES[number % len(DASHES)]


def new_figure(height: float) -> Figure:
    """An empty figure of the page's width, `height` inches high."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def finish(axes: Axes, *, x: str, y: str, grid: str = "y") -> None:
    """Axis titles and a faint grid."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis=grid)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def to_svg(figure: Figure, prefix: str, title: str) -> str:
    """The figure as an SVG element for a page.

    Args:
        figure: Drawn within `rc_context`.
        prefix: Put before every id, since a page holds several figures.
        title: What a screen reader says.
    """
    stream = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    text = stream.getvalue()
    text = _ID.sub(rf"\g<1>{prefix}-", text[text.index("<svg") :])
    text = text.replace(INK, "currentColor").replace(FAINT, "var(--faint)")
    label = title.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def rc_context() -> Any:
    """Settings that figures are drawn and written under."""
    return mpl.rc_context(RC)
