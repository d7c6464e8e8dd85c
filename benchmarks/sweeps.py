"""How a sweep stands, read from its files: nothing here asks a scheduler but for what is queued."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from rich.console import Group
from rich.text import Text

from benchmarks.console import new_table
from benchmarks.files import RunFolderError, read_json
from benchmarks.outcomes import (
    INTERRUPTED,
    OUTCOME,
    SWEEP,
    CellStart,
    cell_folders,
    count_rows,
    read_outcome,
    read_start,
)
from benchmarks.run_files import STATUS, is_held
from benchmarks.shards import is_finished

State = Literal["done", "stopped", "running", "waiting", "failed", "interrupted", "lost", "missing"]
"""`stopped` ended early, as another run was surely faster; `waiting` is queued, `interrupted` was
told to end, `lost` started and ended without a word, `missing` never started."""
UNFINISHED = ("failed", "interrupted", "lost", "missing")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a sweep.

    Attributes:
        label: Its overrides.
        state: See `State`.
        detail: Why it failed or stopped, or where it is.
        num_rows: Rows that its run has so far.
        num_new: Those of the latest attempt, which took `seconds`.
        num_expected: Rows that it will have; None before it is known.
        seconds: How long its latest attempt took or has taken; None if it has not started.
        path: The run folder, once it is known.
    """

    label: str
    state: State
    detail: str = ""
    num_rows: int = 0
    num_new: int = 0
    num_expected: int | None = None
    seconds: float | None = None
    path: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """All cells of a sweep.

    Attributes:
        folder: Its folder.
        words: The overrides of its command.
        cells: In order.
    """

    folder: Path
    words: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def command(self) -> str:
        """What was given; what is finished is not measured again."""
        return shlex.join(["python", "run.py", "-m", *self.words])

    @property
    def unfinished(self) -> list[Cell]:
        """Cells that nobody works on and that are not done."""
        return [cell for cell in self.cells if cell.state in UNFINISHED]

    @property
    def seconds_left(self) -> float | None:
        """What is left, at the pace of the cells so far and as many at a time as now; None if
        none has been measured."""
        measured = [(c.seconds, c.num_new) for c in self.cells if c.seconds and c.num_new]
        sizes = [c.num_expected for c in self.cells if c.num_expected]
        if not measured or not sizes:
            return None
        per_row = sum(seconds for seconds, _ in measured) / sum(rows for _, rows in measured)
        ahead = [c for c in self.cells if c.state not in ("done", "stopped", "failed")]
        usual = sum(sizes) / len(sizes)
        num_left = sum((c.num_expected or usual) - c.num_rows for c in ahead)
        num_active = sum(cell.state == "running" for cell in self.cells)
        return per_row * num_left / max(1, num_active)


def read_sweep(folder: Path) -> Sweep:
    """Reads a sweep's folder.

    Raises:
        RunFolderError: If it is none, or a file is damaged.
    """
    known = read_json(folder / SWEEP)
    if known is None:
        raise RunFolderError(f"{folder} is no folder of a sweep: it has no {SWEEP}")
    labels, queued = known.get("cells") or [], queued_jobs()
    # Folders may be left of a larger sweep that was here before.
    numbers = range(len(labels) or max([int(p.name) + 1 for p in cell_folders(folder)], default=0))
    jobs = known.get("jobs") or {}
    cells = [
        _cell(
            folder / str(number),
            labels[number] if number < len(labels) else "?",
            jobs.get(str(number)),
            queued,
        )
        for number in numbers
    ]
    return Sweep(folder=folder, words=tuple(known["words"]), cells=tuple(cells))


def _cell(folder: Path, label: str, job: str | None, queued: set[str] | None) -> Cell:
    start, outcome = read_start(folder), read_outcome(folder)
    if outcome is not None:
        path = outcome.path or (start.path if start else None)
        facts, stopped = _progress(path, start), _why_stopped(path)
        seconds = None if start is None else _seconds(start, folder / OUTCOME)
        state = _ended(outcome.code, path, is_stopped=bool(stopped))
        detail = (outcome.message or stopped).strip().splitlines()[:1] if state != "done" else []
        return Cell(
            label=outcome.label, state=state, detail="".join(detail), seconds=seconds, **facts
        )
    if start is None:
        # Where SLURM does not answer, a job that was submitted is not submitted again.
        is_queued = job is not None and (queued is None or job in queued)
        return Cell(label=label, state="waiting" if is_queued else "missing")
    facts = _progress(start.path, start)
    state = "running" if _is_alive(start, queued) else "lost"
    where = f"job {start.job} on {start.host}" if start.job else f"{start.host}, pid {start.pid}"
    return Cell(
        label=start.label, state=state, detail=where, seconds=_seconds(start, None), **facts
    )


def _ended(code: int, path: str | None, *, is_stopped: bool) -> State:
    """How a cell with an outcome stands; another job may have done what this one was refused."""
    if code == 0 or (path is not None and is_finished(Path(path))):
        return "stopped" if is_stopped else "done"
    return "interrupted" if code == INTERRUPTED else "failed"


def _progress(path: str | None, start: CellStart | None) -> dict[str, Any]:
    """What the run folder says of its rows."""
    if path is None:
        return {}
    folder = Path(path)
    status: Mapping[str, Any] = read_json(folder / STATUS) or {}
    num_rows = count_rows(folder)
    return {
        "path": path,
        "num_rows": num_rows,
        "num_new": max(0, num_rows - (start.num_rows if start else 0)),
        "num_expected": status.get("num_expected"),
    }


def _why_stopped(path: str | None) -> str:
    """The reason that a run folder gives for an early stop; empty if there was none."""
    status = read_json(Path(path) / STATUS) if path else None
    return str(status["reason"]) if status and status.get("state") == "stopped" else ""


def _is_alive(start: CellStart, queued: set[str] | None) -> bool:
    """Whether somebody is at a cell that has started and not ended."""
    if start.job is not None and queued is not None:
        return start.job in queued
    if start.path is not None and is_held(Path(start.path)):
        return True
    if start.host != platform.node():
        return False
    try:
        os.kill(start.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def queued_jobs() -> set[str] | None:
    """Ids of SLURM jobs of this user that run or wait; None without SLURM, or if it is silent."""
    if shutil.which("squeue") is None:
        return None
    words = ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return set(done.stdout.split()) if done.returncode == 0 else None


def _seconds(start: CellStart, until: Path | None) -> float:
    began = datetime.fromisoformat(start.time)
    if until is None:
        return (datetime.now(timezone.utc) - began).total_seconds()
    return max(0.0, until.stat().st_mtime - began.timestamp())


def render_sweep(sweep: Sweep) -> Group:
    """A line per cell."""
    table = new_table("cell", "state", "rows", "minutes", "", may_wrap=("cell", ""))
    for cell in sweep.cells:
        rows = f"{cell.num_rows}/{cell.num_expected}" if cell.num_expected else ""
        minutes = "" if cell.seconds is None else f"{cell.seconds / 60:.1f}"
        table.add_row(cell.label, cell.state, rows, minutes, cell.detail)
    return Group(Text(str(sweep.folder), style="bold"), table)


def advice(sweep: Sweep) -> list[str]:
    """How many cells are in which state, and what to do: commands, which no table may break."""
    if not sweep.cells:
        return [f"no cell has been started: {sweep.command}"]
    counts: dict[str, int] = {}
    for cell in sweep.cells:
        counts[cell.state] = counts.get(cell.state, 0) + 1
    lines = [", ".join(f"{number} {state}" for state, number in counts.items())]
    if sweep.seconds_left and set(counts) - {"done", "stopped", "failed"}:
        lines.append(f"about {sweep.seconds_left / 60:.0f} minutes left at this pace")
    if sweep.unfinished:
        lines.append(f"all that is not done: {sweep.command}")
        if len(sweep.unfinished) < len(sweep.cells):
            lines += ["or cell by cell:", *(f"  {_one(cell)}" for cell in sweep.unfinished)]
    return lines


def _one(cell: Cell) -> str:
    return f"python run.py {cell.label}"
