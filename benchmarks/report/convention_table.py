"""Acceptance and speedup under every published convention, a column per run."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.conventions import Convention, panel
from benchmarks.report.groups import Group


@dataclass(frozen=True, kw_only=True)
class ConventionRow:
    """One convention.

    Attributes:
        convention: Its name, users, formula and trap; its value is the first run's.
        values: Per run; None where it is not defined.
    """

    convention: Convention
    values: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class ConventionTable:
    """All conventions of the runs whose rows were kept.

    Attributes:
        labels: The runs.
        rows: In the order of `benchmarks.conventions`.
    """

    labels: tuple[str, ...]
    rows: tuple[ConventionRow, ...]


def convention_table(group: Group) -> ConventionTable:
    """Every convention on every run; no rows if no run has kept its own.

    Raises:
        RunFolderError: If rows are damaged.
    """
    entries = [entry for entry in group.entries if entry.run.has_rows]
    panels = [panel(entry.run.requests) for entry in entries]
    return ConventionTable(
        labels=tuple(entry.label for entry in entries),
        rows=tuple(
            ConventionRow(convention=same[0], values=tuple(one.value for one in same))
            for same in zip(*panels, strict=True)
        ),
    )
