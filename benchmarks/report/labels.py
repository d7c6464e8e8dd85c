"""Names beside points and lines, so that no legend must be looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from benchmarks.report.style import INK, colour, marker
from benchmarks.statistics import Interval

_SIZE = 8
"""Of the names, in points."""
_LINE = 11.0
"""Between two names, in points."""
_MARGIN = 5.0
_THIN = 1.0
"""Around a point and around an error bar, in pixels."""
_COLUMN = 1.025
"""Where names at the ends of lines stand, in widths of the axes."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """A name for a point.

    Attributes:
        text: What to write.
        x: In data coordinates.
        y: In data coordinates.
        style: Number of colour and marker.
        is_faint: Whether it matters less.
        x_interval: Ends of its horizontal error bar.
        y_interval: Ends of its vertical error bar.
    """

    text: str
    x: float
    y: float
    style: int
    is_faint: bool = False
    x_interval: Interval | None = None
    y_interval: Interval | None = None


def place_beside(figure: Figure, axes: Axes, labels: Sequence[Label], faint: str) -> None:
    """Writes each name near its point, at the first place where it covers nothing.

    A name that finds none is written to the right of its point all the same.

    Args:
        figure: Whose layout is fixed by this call.
        axes: With its final limits.
        labels: The points that matter first.
        faint: Colour of faint names.
    """
    renderer = _draw(figure)
    taken = [box for label in labels for box in _marks(axes, label)]
    for label in labels:
        note = axes.annotate(
            label.text, (label.x, label.y), textcoords="offset points", xytext=(0, 0),
            va="center", fontsize=_SIZE, color=faint if label.is_faint else INK,
            annotation_clip=False,
        )  # fmt: skip
        for offset, side in [*_OFFSETS, _OFFSETS[0]]:
            note.set_position(offset)
            note.set_horizontalalignment(side)
            box = note.get_window_extent(renderer)
            is_inside = figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
            if is_inside and axes.bbox.y0 <= box.y0 and not any(map(box.overlaps, taken)):
                break
        taken.append(note.get_window_extent(renderer))


def place_at_ends(figure: Figure, axes: Axes, labels: Sequence[Label]) -> None:
    """Writes names with their markers in a column right of the axes, in the order of their `y`.

    A name stands at the height of its point, or above the one below it; `x` is not used.
    """
    _draw(figure)
    gap = _LINE * figure.dpi / 72 / axes.bbox.height
    to_share = axes.transData + axes.transAxes.inverted()
    floor = float("-inf")
    for label in sorted(labels, key=lambda label: label.y):
        height = max(float(to_share.transform((axes.get_xlim()[1], label.y))[1]), floor)
        floor = height + gap
        axes.plot(
            [_COLUMN], [height], marker=marker(label.style), color=colour(label.style),
            markeredgecolor=INK, markeredgewidth=0.4, transform=axes.transAxes, clip_on=False,
        )  # fmt: skip
        axes.text(
            _COLUMN + 0.02, height, label.text, transform=axes.transAxes, va="center",
            fontsize=_SIZE,
        )  # fmt: skip


def _draw(figure: Figure) -> RendererAgg:
    """Where things are is known only once they were drawn."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def _marks(axes: Axes, label: Label) -> list[Bbox]:
    """What a point and its error bars cover, in pixels."""
    left, right = label.x_interval or (label.x, label.x)
    low, high = label.y_interval or (label.y, label.y)
    point = axes.transData.transform([(label.x, label.y)] * 2)
    across = axes.transData.transform([(left, label.y), (right, label.y)])
    upright = axes.transData.transform([(label.x, low), (label.x, high)])
    return [
        Bbox(point).padded(_MARGIN),
        Bbox(across).padded(_THIN),
        Bbox(upright).padded(_THIN),
    ]


_OFFSETS: list[tuple[tuple[float, float], Literal["left", "center", "right"]]] = [
    ((7, 0), "left"), ((-7, 0), "right"), ((0, _LINE), "center"), ((0, -_LINE), "center"),
    *(((side * 5, sign * row * _LINE), "left" if side > 0 else "right")
      for row in (1, 2, 3, 4) for sign in (-1, 1) for side in (1, -1)),
]  # fmt: skip
"""Places around a point in points, near ones first."""
