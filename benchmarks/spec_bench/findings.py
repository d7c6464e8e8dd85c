"""What can be wrong with an answer file: one record per fault, with its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
MOST_SHOWN = 5
"""Findings of one rule in one file that are printed."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault or oddity of an answer file.

    Attributes:
        path: The file.
        line: 1-based; None if it concerns the file as a whole.
        rule: Id of the rule, e.g. `error-row`.
        severity: `error`: a number or a row is wrong; `warning`: one may be; `note`: worth knowing.
        message: What is wrong, with the values found.
    """

    path: Path
    line: int | None
    rule: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        place = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.severity} [{self.rule}] {self.message}"

    def to_json(self) -> dict[str, Any]:
        """All fields, the path as its file name: a result must not depend on where a file lay."""
        return asdict(self) | {"path": self.path.name}


def shown(findings: Sequence[Finding], most: int = MOST_SHOWN) -> Iterator[str]:
    """What to print: of each rule and file the first findings, then how many more there are.

    Args:
        findings: In the order of printing.
        most: Lines per rule and file, at least 1.
    """
    totals = Counter((finding.path, finding.rule) for finding in findings)
    seen: Counter[tuple[Path, str]] = Counter()
    for finding in findings:
        key = finding.path, finding.rule
        seen[key] += 1
        if seen[key] <= most:
            yield str(finding)
        if seen[key] == most < totals[key]:
            more = f"... and {totals[key] - most} more of this kind"
            yield f"{finding.path}: {finding.severity} [{finding.rule}] {more}"


def plural(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def count_by_severity(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many there are of each severity, zeros included."""
    found = [finding.severity for finding in findings]
    return {severity: found.count(severity) for severity in SEVERITIES}
