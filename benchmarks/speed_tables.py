"""What benchmarks of the loop print."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from benchmarks.bench_inputs import CURVE_CONTEXT
from benchmarks.speed import Comparison


def arms_table(result: Comparison) -> Table:
    """The loop against the library, with and without drafts."""
    table = Table(title="tokens/s and ratios (median over rounds, least to largest in brackets)")
    for column in ("arm", "tok/s", "against", "ratio", "other ids"):
        table.add_column(column, justify="left" if column in ("arm", "against") else "right")
    for arm, over in (
        ("generate", None),
        ("vanilla", "generate"),
        ("generate+pld", "generate"),
        ("pld", "generate+pld"),
        ("pld", "vanilla"),
    ):
        ratio = "-"
        if over is not None:
            median, low, high = result.speedup(arm, over)
            ratio = f"{median:.2f}x ({low:.2f} to {high:.2f})"
        table.add_row(
            arm,
            f"{result.tokens_per_second(arm):.1f}",
            over or "-",
            ratio,
            f"{result.num_different[arm]} prompts",
        )
    return table


def phase_line(name: str, shares: Mapping[str, float]) -> str:
    """Where the time of a step goes; `outside` is all but the target's forward."""
    parts = "  ".join(f"{phase} {100 * share:.2f} %" for phase, share in shares.items())
    outside = 100 * (1 - shares["forward"])
    return f"time of a step of {name}: {parts}  | outside the forward {outside:.2f} %"


def curve_table(milliseconds: Mapping[int, float]) -> Table:
    """t(k) and t(k)/t(1)."""
    table = Table(title=f"tree forward of k rows behind {CURVE_CONTEXT} tokens")
    table.add_column("k")
    for k in milliseconds:
        table.add_column(str(k), justify="right")
    table.add_row("ms", *(f"{value:.1f}" for value in milliseconds.values()))
    table.add_row(
        "t(k)/t(1)", *(f"{value / milliseconds[1]:.2f}" for value in milliseconds.values())
    )
    return table
