"""A leaderboard as raw numbers: one line per run, for pandas, R or a spreadsheet."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pandas as pd

from benchmarks.leaderboard.boards import Board, Leaderboard, Row


def to_csv(leaderboard: Leaderboard) -> str:
    """The frame as CSV; an empty field is a missing value."""
    return tidy_frame(leaderboard).to_csv(index=False)


def tidy_frame(leaderboard: Leaderboard) -> pd.DataFrame:
    """One line per ranked or broken run, vanilla left out, in the order of the tables.

    Returns:
        Columns: `table` (from 1), `rank`, `standing`, names and ids, conditions
        (`device.name`, `setting.dtype`, ...), `overall` and its interval, counts, `task.<title>`,
        and of each metric its value, `<name>.low` and `<name>.high`, in the units of summary.json.
    """
    lines = [
        {"table": number, **_line(board, row)}
        for number, board in enumerate(leaderboard.boards, start=1)
        for row in board.rows
        if row.entry.run is not None
    ]
    return pd.DataFrame(lines).convert_dtypes()


def _line(board: Board, row: Row) -> dict[str, Any]:
    return {**_identity(row), **_conditions(board), **_figures(row), **_metrics(row)}


def _identity(row: Row) -> dict[str, Any]:
    entry, run = row.entry, row.entry.run
    assert run is not None
    certificate = entry.certificate
    return {
        "rank": row.rank,
        "standing": row.standing,
        "label": entry.label,
        "method": run.facts["method"],
        "run_id": run.facts["run_id"],
        "path": str(run.path),
        "is_lossless": run.facts["is_lossless"],
        "is_imported": run.is_imported,
        "is_stopped": run.is_stopped,
        "certificate_tier": certificate.get("tier"),
        "certificate_status": certificate.get("status"),
        "certificate_badge": certificate.get("badge"),
        "commit": entry.commit or None,
        "code_version": run.env.get("code_version"),
        "primary_speedup": run.summary["primary_speedup"],
        "speedup_definition": entry.metric(run.summary["primary_speedup"]).get("definition"),
        "tau_definition": entry.metric("tau").get("definition"),
    }


def _conditions(board: Board) -> dict[str, Any]:
    conditions = board.conditions
    parts = {
        "device": conditions.device,
        "environment": conditions.environment,
        "setting": conditions.settings,
        "detail": conditions.details,
    }
    names = {"model": conditions.model, "dataset": conditions.dataset}
    return names | {
        re.sub(r"[ -]", "_", f"{part}.{name}"): value
        for part, facts in parts.items()
        for name, value in facts
    }


def _figures(row: Row) -> dict[str, Any]:
    entry, run = row.entry, row.entry.run
    assert run is not None
    low, high = entry.interval or (None, None)
    tasks = {f"task.{title}": figure.value for title, figure in entry.tasks.items()}
    return {
        "overall": entry.overall,
        "overall.low": low,
        "overall.high": high,
        "num_prompts": run.summary["num_prompts"],
        "num_measured": run.summary["num_measured"],
        "num_failed": run.summary["num_failed"],
        "node_budget": entry.node_budget,
        "store_bytes": entry.store_bytes,
        "store_overlaps": _num_overlaps(entry.store_overlaps),
        **tasks,
    }


def _num_overlaps(overlaps: Collection[int | None]) -> int | None:
    """Documents of all stores; None if one of them was never compared with the test data."""
    return None if None in overlaps else sum(filter(None, overlaps))


def _metrics(row: Row) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, metric in row.entry.metrics.items():
        values[name] = metric.get("value")
        if metric.get("interval"):
            values[f"{name}.low"], values[f"{name}.high"] = metric["interval"]
    return values
