"""The figures of every group: as SVG for the page, and as files for papers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.files import explain_os_errors
from benchmarks.report import curves
from benchmarks.report.figures import (
    draw_accept_at_depth,
    draw_phases,
    draw_tau_along,
    draw_tokens_per_step,
    draw_trades,
)
from benchmarks.report.groups import Group, group_runs
from benchmarks.report.style import DPI, rc_context, to_svg
from benchmarks.report.trade import quality_metrics, quality_title, trades
from benchmarks.results import StoredRun

FORMATS = ("png", "pdf")


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure of one group.

    Attributes:
        name: Of its file, without a suffix.
        title: What it shows.
        svg: As an element of a page.
    """

    name: str
    title: str
    svg: str


def group_plots(
    group: Group, number: int, folder: Path | None = None, suffix: str = "png"
) -> dict[str, list[Plot]]:
    """The figures of a group by section: `trade`, `accept`, `phases`, `along`; none without data.

    Args:
        group: What to draw.
        number: Of the group on the page, from 1.
        folder: Where to save them too; None for nowhere.
        suffix: `png` or `pdf`.

    Raises:
        RunFolderError: If rows are damaged, or a file cannot be written.
    """
    sections: dict[str, list[Plot]] = {}
    with rc_context():
        for section, name, title, figure in _figures(group):
            stem = f"{number}-{_slug(group)}-{name}"
            svg = to_svg(figure, f"{name}-{number}", title)
            sections.setdefault(section, []).append(Plot(name=stem, title=title, svg=svg))
            if folder is not None:
                _save(figure, folder / f"{stem}.{suffix}")
    return sections


def run_figures(run: StoredRun) -> dict[str, Figure]:
    """The figures of one run by name, for whoever shows them elsewhere.

    Raises:
        RunFolderError: If rows are damaged.
    """
    with rc_context():
        return {
            name: figure for group in group_runs([run]) for _, name, _, figure in _figures(group)
        }


Drawn = tuple[str, str, str, Figure]
"""Section, name, title, figure."""


def _figures(group: Group) -> Iterator[Drawn]:
    drawers: Sequence[Callable[[Group], Iterator[Drawn]]] = (_trades, _accept, _phases, _along)
    for drawer in drawers:
        yield from drawer(group)


def _trades(group: Group) -> Iterator[Drawn]:
    for number, metric in enumerate(quality_metrics(group)):
        found = trades(group, metric)
        if len(found) > 1:
            title = f"Speedup against {quality_title(metric)}"
            yield (
                "trade",
                f"quality{number or ''}",
                title,
                draw_trades(found, quality_title(metric)),
            )


def _accept(group: Group) -> Iterator[Drawn]:
    shares = {(e.label, e.style): curves.tokens_per_step(e.turns("method")) for e in group.entries}
    shares = {series: share for series, share in shares.items() if share}
    if shares:
        yield "accept", "tokens", "Share of steps by output tokens", draw_tokens_per_step(shares)
    points = {(e.label, e.style): curves.accept_at_depth(e.metrics) for e in group.entries}
    points = {series: line for series, line in points.items() if line}
    if points:
        title = "Share of steps whose kept path reached a depth"
        yield "accept", "depth", title, draw_accept_at_depth(points)


def _phases(group: Group) -> Iterator[Drawn]:
    times = {entry.label: curves.phase_times(entry.turns("method")) for entry in group.entries}
    if all(times.values()):
        vanilla = curves.phase_times(group.entries[0].turns("vanilla"))
        bars = ({"vanilla": vanilla} if vanilla else {}) | times
        yield "phases", "phases", "Time per step by phase", draw_phases(bars, "ms per step")
        return
    shares = {entry.label: curves.phase_shares(entry.metrics) for entry in group.entries}
    shares = {label: share for label, share in shares.items() if share}
    if shares:
        title = "Share of step time by phase"
        yield "phases", "phases", title, draw_phases(shares, "share of step time")


def _along(group: Group) -> Iterator[Drawn]:
    answers = {(e.label, e.style): e.turns("method") for e in group.entries}
    width = curves.bin_width(list(answers.values()))
    points = {series: curves.tau_along(turns, width) for series, turns in answers.items()}
    points = {series: line for series, line in points.items() if line}
    if points:
        title = "Tokens per step along the output"
        yield "along", "along", title, draw_tau_along(points, width)


def _save(figure: Figure, path: Path) -> None:
    with explain_os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # A fixed date in the file, so that equal figures are equal files.
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
        figure.savefig(path, dpi=DPI, metadata=metadata)


def _slug(group: Group) -> str:
    """Model and dataset, as a file name may spell them."""
    facts = group.entries[0].run.facts
    return re.sub(r"[^A-Za-z0-9._]+", "-", f"{facts['model']}-{facts['dataset']}").strip("-.")
