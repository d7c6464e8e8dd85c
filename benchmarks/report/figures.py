"""The figures of the page, one function each: values in, a figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from benchmarks.metrics import STEP_PHASES
from benchmarks.report.curves import Point
from benchmarks.report.labels import Label, place_at_ends, place_beside
from benchmarks.report.style import (
    COLOURS,
    FAINT,
    HATCHES,
    INK,
    colour,
    dashes,
    finish,
    marker,
    new_figure,
)
from benchmarks.report.trade import Trade
from benchmarks.statistics import Interval

Series = tuple[str, int]
"""Label and style number of a run."""

FORWARD = "forward"


def draw_trades(trades: Sequence[Trade], quality: str) -> Figure:
    """Speed against quality, the front joined, dominated runs faint.

    Args:
        trades: At least one.
        quality: Title of the axis.
    """
    figure = new_figure(3.6)
    axes = figure.add_subplot()
    front = sorted((t.speed, t.quality) for t in trades if not t.is_dominated)
    axes.step(*zip(*front, strict=True), where="pre", color=INK, linewidth=1, zorder=1)
    for trade in trades:
        paint = FAINT if trade.is_dominated else colour(trade.style)
        axes.errorbar(
            trade.speed, trade.quality, fmt=marker(trade.style), color=paint, ecolor=paint,
            xerr=_errors(trade.speed, trade.speed_interval),
            yerr=_errors(trade.quality, trade.quality_interval),
            markeredgecolor=FAINT if trade.is_dominated else INK, markeredgewidth=0.5,
            markersize=9 if trade.style < 0 else 7, elinewidth=1, zorder=2,
        )  # fmt: skip
    finish(axes, x="speedup (vanilla = 1)", y=quality, grid="both")
    _make_room(axes, trades)
    labels = [
        Label(text=t.label, x=t.speed, y=t.quality, style=t.style, is_faint=t.is_dominated,
              x_interval=t.speed_interval, y_interval=t.quality_interval)
        for t in sorted(trades, key=lambda trade: trade.is_dominated)
    ]  # fmt: skip
    place_beside(figure, axes, labels, faint="#7d7d88")
    return figure


def _make_room(axes: Axes, trades: Sequence[Trade]) -> None:
    """Space above for names, without numbers that no quality reaches."""
    low, high = axes.get_ylim()
    best = max(max(t.quality, *(t.quality_interval or (0.0,))) for t in trades)
    if all(trade.quality == best for trade in trades):
        low, high = best - 0.1, best
    axes.set_ylim(low, high)
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= best])
    axes.set_ylim(low - 0.05 * (high - low), high + 0.3 * (high - low))


def draw_tokens_per_step(shares: Mapping[Series, Mapping[int, float]]) -> Figure:
    """One small histogram per run on common axes.

    Args:
        shares: Share of steps by the number of tokens they output, at least one run.
    """
    columns = min(4, ceil(len(shares) / 2))
    rows = ceil(len(shares) / columns)
    figure = new_figure(0.5 + 1.45 * rows)
    panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for panel, ((label, style), share) in zip(panels, shares.items(), strict=False):
        panel.bar(list(share), list(share.values()), width=0.8, color=colour(style), edgecolor=INK,
                  linewidth=0.4)  # fmt: skip
        mean = sum(num * part for num, part in share.items())
        panel.axvline(mean, color=INK, linewidth=1, linestyle=(0, (3, 2)))
        panel.set_title(f"{label}\nmean {mean:.2f}", fontsize=8)
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        panel.grid(axis="y")
        panel.set_axisbelow(True)
    for panel in panels[len(shares) :]:
        panel.set_axis_off()
    figure.supxlabel("output tokens of a step", fontsize=9)
    figure.supylabel("share of steps", fontsize=9)
    return figure


def draw_accept_at_depth(points: Mapping[Series, Sequence[Point]]) -> Figure:
    """One line per run over the depth of the kept path.

    Args:
        points: At least one run, each with at least one point.
    """
    figure = new_figure(3.2)
    axes = figure.add_subplot()
    for (_, style), line in points.items():
        _line(axes, line, style)
    axes.set_ylim(0, None)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    finish(axes, x="depth in the draft tree (tokens)", y="steps that kept a path this deep")
    _name_lines(figure, axes, {series: line[0].value for series, line in points.items()})
    return figure


def draw_phases(times: Mapping[str, Mapping[str, float]], unit: str) -> Figure:
    """One bar per run, stacked by phase; beside it what is not the target's forward, enlarged.

    Args:
        times: By run, then by phase; at least one run, the same phases in each.
        unit: Of the values.
    """
    figure = new_figure(1.0 + 0.27 * len(times))
    whole, rest = figure.subplots(1, 2, sharey=True)
    phases = list(next(iter(times.values())))
    _stack(whole, times, phases)
    _stack(rest, times, [phase for phase in phases if phase != FORWARD])
    whole.set_title("whole step")
    rest.set_title(f"without {FORWARD}")
    for axes in (whole, rest):
        axes.xaxis.set_major_locator(MaxNLocator(5))
        finish(axes, x=unit, y="", grid="x")
    handles, names = whole.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=7, fontsize=8, handlelength=1.4,
                  columnspacing=1)  # fmt: skip
    return figure


def _stack(axes: Axes, times: Mapping[str, Mapping[str, float]], phases: Sequence[str]) -> None:
    """Horizontal bars, the first run on top, with their sums."""
    names = list(times)[::-1]
    left = [0.0] * len(names)
    for phase in phases:
        number = STEP_PHASES.index(phase)
        widths = [times[name][phase] for name in names]
        axes.barh(
            names, widths, left=left, label=phase, height=0.66, edgecolor=INK, linewidth=0.4,
            color=COLOURS[number % len(COLOURS)], hatch=HATCHES[number % len(HATCHES)],
        )  # fmt: skip
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for name, total in zip(names, left, strict=True):
        axes.annotate(f"{total:.3g}", (total, name), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize=8)  # fmt: skip
    axes.margins(x=0.16)


def draw_tau_along(points: Mapping[Series, Sequence[Point]], width: int) -> Figure:
    """One line per run over the position in the output, with its interval as a band.

    Args:
        points: At least one run, each with at least one point.
        width: Of the bins, in tokens.
    """
    figure = new_figure(3.4)
    axes = figure.add_subplot()
    for (_, style), line in points.items():
        middles = [Point(x=p.x + width // 2, value=p.value, interval=p.interval) for p in line]
        for part in _unbroken(middles, width):
            _line(axes, part, style, has_band=True)
    axes.axhline(1.0, color=FAINT, linewidth=1)
    finish(axes, x=f"position in the output (tokens, bins of {width})", y="tokens per step")
    _name_lines(figure, axes, {series: line[-1].value for series, line in points.items()})
    return figure


def _line(axes: Axes, line: Sequence[Point], style: int, has_band: bool = False) -> None:
    axes.plot(
        [point.x for point in line], [point.value for point in line], color=colour(style),
        marker=marker(style), linestyle=dashes(style), markeredgecolor=INK, markeredgewidth=0.4,
    )  # fmt: skip
    known = [(p.x, *p.interval) for p in line if p.interval is not None]
    if has_band and known:
        x, low, high = zip(*known, strict=True)
        axes.fill_between(x, low, high, color=colour(style), alpha=0.13, linewidth=0)


def _unbroken(line: Sequence[Point], width: int) -> list[list[Point]]:
    """The line in parts, cut where a bin is missing."""
    parts: list[list[Point]] = []
    for point in line:
        if parts and point.x - parts[-1][-1].x == width:
            parts[-1].append(point)
        else:
            parts.append([point])
    return parts


def _name_lines(figure: Figure, axes: Axes, ends: Mapping[Series, float]) -> None:
    right = axes.get_xlim()[1]
    labels = [Label(text=label, x=right, y=y, style=style) for (label, style), y in ends.items()]
    place_at_ends(figure, axes, labels)


def _errors(value: float, interval: Interval | None) -> list[list[float]] | None:
    """Distances to both ends, as error bars want them."""
    if interval is None:
        return None
    return [[max(0.0, value - interval[0])], [max(0.0, interval[1] - value)]]
