"""Runs in, one HTML file out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.conventions import LETTERS
from benchmarks.files import explain_os_errors, write_atomically
from benchmarks.report.columns import ResultTable, result_table
from benchmarks.report.convention_table import ConventionTable, convention_table
from benchmarks.report.divergences import Divergence, divergences
from benchmarks.report.groups import Group, code_version, device_name, group_runs
from benchmarks.report.guards import Card, Ending, endings, failures, notes
from benchmarks.report.plots import Plot, group_plots
from benchmarks.report.token_view import MAX_PROMPTS, TokenView
from benchmarks.results import StoredRun, Unusable


@dataclass(frozen=True, kw_only=True)
class Section:
    """What the page shows of one group.

    Attributes:
        group: The runs.
        table: Their results.
        plots: Figures by section.
        endings: How answers ended.
        notes: What must not be missed.
        failures: Errors.
        divergences: Where outputs leave vanilla's.
        conventions: Other definitions of acceptance and speedup.
    """

    group: Group
    table: ResultTable
    plots: dict[str, list[Plot]]
    endings: list[Ending]
    notes: list[str]
    failures: list[Card]
    divergences: list[Divergence]
    conventions: ConventionTable


def write_report(
    output: Path,
    runs: Sequence[StoredRun],
    unusable: Sequence[Unusable],
    *,
    plots: Path | None = None,
    plot_format: str = "png",
    max_prompts: int = MAX_PROMPTS,
) -> None:
    """Writes the page, and the figures as files if a folder for them is given.

    Args:
        output: The HTML file; its folder is made.
        runs: Finished runs.
        unusable: Folders that could not be read, which the page names.
        plots: Where to save figures; None for nowhere.
        plot_format: `png` or `pdf`.
        max_prompts: Prompts per run to show token by token, at least 1.

    Raises:
        RunFolderError: If rows are damaged, or a file cannot be written.
        ValueError: If `max_prompts` is below 1.
    """
    groups = group_runs(runs)
    html = render(
        runs=runs,
        unusable=[*unusable, *_not_measured(runs)],
        sections=[
            _section(group, group_plots(group, number, plots, plot_format))
            for number, group in enumerate(groups, 1)
        ],
        token_view=TokenView(max_prompts=max_prompts).to_json(groups),
    )
    with explain_os_errors(output.parent):
        output.parent.mkdir(parents=True, exist_ok=True)
    # Texts of models may hold halves of characters, which no encoding has a place for.
    write_atomically(output, html.encode("utf-8", errors="replace"))


def render(
    *,
    runs: Sequence[StoredRun],
    unusable: Sequence[Unusable],
    sections: Sequence[Section],
    token_view: dict[str, Any],
) -> str:
    """The page as text; see `write_report`."""
    environment = Environment(
        loader=PackageLoader("benchmarks.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    package = files("benchmarks.report")
    return environment.get_template("page.html.jinja").render(
        header=_header(runs),
        unusable=unusable,
        sections=sections,
        has_tokens=bool(token_view["runs"]),
        data=embed(token_view),
        letters=LETTERS,
        css=Markup(package.joinpath("page.css").read_text(encoding="utf-8")),
        scripts=[
            Markup(package.joinpath(name).read_text(encoding="utf-8"))
            for name in ("sort.js", "tree.js", "tokens.js")
        ],
    )


def embed(value: Any) -> Markup:
    """JSON that may stand inside a `<script>` element, whatever texts it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _section(group: Group, plots: dict[str, list[Plot]]) -> Section:
    return Section(
        group=group,
        table=result_table(group),
        plots=plots,
        endings=endings(group),
        notes=notes(group),
        failures=failures(group),
        divergences=divergences(group),
        conventions=convention_table(group),
    )


def _header(runs: Sequence[StoredRun]) -> list[tuple[str, str]]:
    """What was measured, on what and with what; each distinct value once."""
    values = {
        "models": [str(run.facts["model"]) for run in runs],
        "datasets": [f"{run.facts['dataset']} ({run.facts.get('split') or '?'})" for run in runs],
        "devices": [device_name(run) for run in runs],
        "code versions": [code_version(run) for run in runs],
        "measured": [_day(run) for run in runs],
    }
    return [(name, ", ".join(dict.fromkeys(found))) for name, found in values.items()]


def _day(run: StoredRun) -> str:
    sessions = run.env.get("sessions") or [{}]
    return str(sessions[-1].get("time") or "unknown")[:10]


def _not_measured(runs: Sequence[StoredRun]) -> list[Unusable]:
    """Finished runs in which no prompt succeeded."""
    reason = "no prompt was answered by both vanilla and the method"
    return [
        Unusable(path=run.path, reason=f"{run.facts['method']}: {reason}")
        for run in runs
        if not run.summary["num_measured"]
    ]
