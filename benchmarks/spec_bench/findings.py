"""What can be wrong with an answer file: one record per fault, with its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


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


def count_by_severity(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many there are of each severity, zeros included."""
    found = [finding.severity for finding in findings]
    return {severity: found.count(severity) for severity in SEVERITIES}
