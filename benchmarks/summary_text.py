"""Values of a run's summary in words; no table library is needed for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Summary = Mapping[str, Any]
"""`summary.json` of one run."""


def variant(run: Mapping[str, Any]) -> str:
    """` (float32, prepacked, cpu)`: what two runs of one model may differ in."""
    words = [run[key] for key in ("dtype", "linear_kernels", "device") if run.get(key)]
    return f" ({', '.join(words)})" if words else ""


def show(metric: Mapping[str, Any], form: str) -> str:
    """A value in a format; `x` is a ratio with its interval, `x-` alone, `+` a change with it."""
    value, interval = metric["value"], metric["interval"]
    if value is None:
        return "-"
    if form == "+":
        ends = "" if interval is None else f" [{interval[0]:+.3f}, {interval[1]:+.3f}]"
        return f"{value:+.3f}{ends}"
    if not form.startswith("x"):
        return format(value, form)
    if form == "x-" or interval is None:
        return f"{value:.2f}x"
    return f"{value:.2f}x [{interval[0]:.2f}, {interval[1]:.2f}]"


def show_count(metric: Mapping[str, Any] | None) -> str:
    """`22/24` prompts; nothing if they were not counted."""
    return "" if metric is None else f"{metric['value']}/{metric['num_prompts']}"


def badge(summary: Summary) -> str:
    """The certificate in a few words; of runs from before there was one, how many ids are equal."""
    if "certificate" in summary:
        return str(summary["certificate"]["badge"])
    return show_count(summary["metrics"].get("identical_outputs"))


def stop_note(summary: Summary) -> str:
    """`stopped at 16 of 48 prompts: slower than pld`; empty if the run was not stopped early."""
    stop = summary.get("stopped")
    if not stop:
        return ""
    place = f"{stop['num_prompts']} of {stop['num_total']} prompts"
    return f"stopped at {place}: slower than {stop['better']}"
