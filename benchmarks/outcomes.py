"""How the cells of a sweep stand, one folder each: cells may run in other processes and machines.

    <sweep>/sweep.json         the command, when it was given, and its cells
    <sweep>/<n>/started.json   what the cell is, where it runs, and its run folder once it is known
    <sweep>/<n>/outcome.json   how it ended

A cell without `outcome.json` runs, waits, or was lost with its machine. Files are replaced whole.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.files import RunFolderError, read_json, write_json
from benchmarks.provenance import timestamp
from benchmarks.run_files import ROWS

SWEEP, STARTED, OUTCOME = "sweep.json", "started.json", "outcome.json"
INTERRUPTED = 130
"""The exit code of what Ctrl-C, or a scheduler that asks for it, has ended."""


@dataclass(frozen=True, kw_only=True)
class CellOutcome:
    """How one cell ended.

    Attributes:
        label: Its overrides.
        code: As an exit code: 0 done, 1 the run failed, 2 it could not be started, 130 interrupted.
        message: What to tell the user, if anything.
        path: The run folder, if there are results.
    """

    label: str
    code: int
    message: str | None = None
    path: str | None = None


@dataclass(frozen=True, kw_only=True)
class CellStart:
    """Where a cell runs.

    Attributes:
        label: Its overrides.
        host: Name of the machine.
        pid: The process there.
        job: SLURM's id of the job; None without SLURM.
        time: When it started, in UTC.
        path: The run folder; None until it is known.
        num_rows: Rows that earlier attempts have left there.
    """

    label: str
    host: str
    pid: int
    job: str | None
    time: str
    path: str | None = None
    num_rows: int = 0


def label_of(words: Sequence[str]) -> str:
    """The overrides of a cell as they are typed in a shell."""
    return shlex.join(words)


def count_rows(run: str | Path) -> int:
    """Rows of a run folder, without reading them."""
    rows = Path(run) / ROWS
    return rows.read_bytes().count(b"\n") if rows.is_file() else 0


def note_sweep(folder: Path, words: Sequence[str]) -> None:
    """Writes down a sweep before its first cell; what an earlier one left there is forgotten.

    Raises:
        RunFolderError: If it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for cell in cell_folders(folder):
        for name in (STARTED, OUTCOME):
            (cell / name).unlink(missing_ok=True)
    write_json(folder / SWEEP, {"words": list(words), "time": timestamp(), "cwd": str(Path.cwd())})


def note_cells(folder: Path, labels: Sequence[str]) -> None:
    """Adds to a sweep what its cells are.

    Raises:
        RunFolderError: If it cannot be written.
    """
    known = read_json(folder / SWEEP) or {}
    write_json(folder / SWEEP, {**known, "cells": list(labels)})


def note_jobs(folder: Path, jobs: Mapping[int, str]) -> None:
    """Adds to a sweep which jobs its cells are, by their number.

    Raises:
        RunFolderError: If it cannot be written.
    """
    known = read_json(folder / SWEEP) or {}
    ids = {str(number): job for number, job in jobs.items()}
    write_json(folder / SWEEP, {**known, "jobs": {**known.get("jobs", {}), **ids}})


def note_start(folder: Path, label: str, path: Path | None = None) -> None:
    """Writes down that a cell runs here, and again when its run folder is known.

    Raises:
        RunFolderError: If it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    start = CellStart(
        label=label,
        host=platform.node(),
        pid=os.getpid(),
        job=f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID"),
        time=timestamp(),
        path=None if path is None else str(path.resolve()),
        num_rows=0 if path is None else count_rows(path),
    )
    # What an earlier attempt left is no outcome of this one.
    (folder / OUTCOME).unlink(missing_ok=True)
    write_json(folder / STARTED, asdict(start))


def note_outcome(folder: Path, outcome: CellOutcome) -> None:
    """Writes down how a cell ended.

    Raises:
        RunFolderError: If it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / OUTCOME, asdict(outcome))


def read_cells(sweep: Path) -> list[str]:
    """What the cells of a sweep are; empty before they are known.

    Raises:
        RunFolderError: If a file is damaged.
    """
    return list((read_json(sweep / SWEEP) or {}).get("cells") or [])


def read_outcomes(sweep: Path) -> list[CellOutcome]:
    """The outcomes that there are, in the order of the cells.

    Raises:
        RunFolderError: If a file is damaged.
    """
    found = [read_json(folder / OUTCOME) for folder in cell_folders(sweep)]
    return [_parse(CellOutcome, value) for value in found if value is not None]


def read_start(folder: Path) -> CellStart | None:
    """Where a cell runs or ran; None if it has not started.

    Raises:
        RunFolderError: If the file is damaged.
    """
    value = read_json(folder / STARTED)
    return None if value is None else _parse(CellStart, value)


def read_outcome(folder: Path) -> CellOutcome | None:
    """How a cell ended; None if it has not.

    Raises:
        RunFolderError: If the file is damaged.
    """
    value = read_json(folder / OUTCOME)
    return None if value is None else _parse(CellOutcome, value)


def cell_folders(sweep: Path) -> list[Path]:
    """The folders of the cells that have started, by their number."""
    if not sweep.is_dir():
        return []
    folders = [path for path in sweep.iterdir() if path.is_dir() and path.name.isdigit()]
    return sorted(folders, key=lambda path: int(path.name))


_Record = TypeVar("_Record", CellOutcome, CellStart)


def _parse(cls: type[_Record], value: Mapping[str, Any]) -> _Record:
    try:
        return cls(**value)
    except TypeError as error:
        raise RunFolderError(f"a damaged file of a sweep: {error}") from error
