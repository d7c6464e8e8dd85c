"""One line per scored answer: the file that a run keeps its scores in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.files import RunFolderError, explain_os_errors, write_atomically

ARMS = ("vanilla", "method")
"""The arms that are scored: `generate` is there for its speed only."""


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """How good one arm's answer to a prompt is.

    Attributes:
        prompt_id: As in the dataset.
        repeat: From 0.
        arm: `vanilla` or `method`.
        scorer: Registered name of the scorer.
        metric: What the mean of the values is called.
        value: In [0, 1], the mean over the turns that could be scored.
        detail: What it rests on, turn by turn.
    """

    prompt_id: str
    repeat: int
    arm: str
    scorer: str
    metric: str
    value: float
    detail: str = ""

    def __post_init__(self) -> None:
        for name in ("prompt_id", "scorer", "metric", "detail"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a text, got {getattr(self, name)!r}")
        if self.arm not in ARMS:
            raise ValueError(f"arm must be {' or '.join(ARMS)}, got {self.arm!r}")
        if not isinstance(self.repeat, int) or self.repeat < 0:
            raise ValueError(f"repeat must be a number ≥ 0, got {self.repeat!r}")
        if not 0.0 <= self.value <= 1.0:
            raise ValueError(f"value must be in [0, 1], got {self.value}")

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ScoreRow:
        """The inverse of `to_json`.

        Raises:
            TypeError: If fields are missing or unknown, or have another type.
            ValueError: If a value is out of its range.
        """
        return cls(**value)


def write_scores(path: Path, rows: Sequence[ScoreRow]) -> None:
    """Writes one line of JSON per row, atomically.

    Raises:
        RunFolderError: If the file cannot be written.
    """
    lines = [json.dumps(row.to_json(), ensure_ascii=False, allow_nan=False) for row in rows]
    text = "".join(f"{line}\n" for line in lines)
    # As in Request.to_line: what cannot be encoded gets its JSON escape.
    write_atomically(path, text.encode("utf-8", errors="backslashreplace"))


def read_scores(path: Path) -> list[ScoreRow]:
    """The rows of a file; none if there is no such file.

    Raises:
        RunFolderError: If it cannot be read, or a line is damaged; names the line.
    """
    with explain_os_errors(path.parent):
        content = path.read_bytes() if path.exists() else b""
    lines = content.split(b"\n")
    if lines[-1]:
        raise RunFolderError(f"{path}:{len(lines)}: the last line is cut off; score the run anew")
    return [_parse(line, f"{path}:{number}") for number, line in enumerate(lines[:-1], start=1)]


def _parse(line: bytes, place: str) -> ScoreRow:
    try:
        return ScoreRow.from_json(json.loads(line))
    except (TypeError, ValueError) as error:
        raise RunFolderError(
            f"{place}: expected the score of an answer, found a damaged line "
            f"({type(error).__name__}: {error}); score the run anew"
        ) from error
