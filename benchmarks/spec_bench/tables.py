"""Imported numbers as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.text import Text

from benchmarks.console import new_table
from benchmarks.spec_bench.imports import ImportedRun
from benchmarks.summary_text import show, show_count, variant

COLUMNS = ("", "prompts", "tau", "speedup [95 %]", "in time", "tok/s", "vanilla")
EXPLANATION = (
    "tau: tokens per step, the prefill's included; speedup: ratio of mean rates, as Spec-Bench "
    "prints it; in time: sum of vanilla's times over the method's"
)


def render_import(run: ImportedRun) -> Group:
    """One line per task of Spec-Bench and one of all questions."""
    summary, facts = run.summary, run.summary["run"]
    metrics = summary["metrics"]
    table = new_table(*COLUMNS)
    for task, of_task in summary["tasks"].items():
        table.add_row(task, *_cells(of_task))
    table.add_row("all", *_cells(metrics))
    title = f"{facts['method']} on {facts['dataset']}, {facts['model']}{variant(facts)}"
    same = show_count(metrics.get("identical_outputs")) or "not compared"
    counts = (
        f"same text as vanilla: {same}; failed: "
        f"{summary['num_failed']}; left out: {run.num_excluded} of {summary['num_prompts']}"
    )
    return Group(Text(title, style="bold"), table, "", Text(counts), Text(EXPLANATION))


def _cells(metrics: Mapping[str, Any]) -> list[str]:
    return [
        str(metrics["tau"]["num_prompts"]),
        show(metrics["tau"], ".3f"),
        _ratio(metrics["speedup_spec_bench"]),
        _ratio({**metrics["speedup"], "interval": None}),
        show(metrics["tokens_per_second"], ".1f"),
        show(metrics["vanilla_tokens_per_second"], ".1f"),
    ]


def _ratio(metric: Mapping[str, Any]) -> str:
    """To three digits, in which published numbers are compared."""
    if metric["value"] is None or metric["interval"] is None:
        return show(metric, ".3f")
    low, high = metric["interval"]
    return f"{metric['value']:.3f} [{low:.3f}, {high:.3f}]"
