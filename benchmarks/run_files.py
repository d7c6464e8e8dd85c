"""Where run folders lie, who holds them, and names of the files in them.

`run_folder` says what each of these holds.
"""

from __future__ import annotations

import re
from pathlib import Path

from filelock import FileLock, Timeout

CONFIG = "config.yaml"
ENVIRONMENT = "env.json"
ROWS = "requests.jsonl"
SCORES = "scores.jsonl"
EXAMINED = "examination.json"
SUMMARY = "summary.json"
STATUS = "status.json"
LOCK = ".lock"
"""Held by the process that writes the folder."""


def run_path(results_dir: Path, *, model: str, dataset: str, method: str, run_id: str) -> Path:
    """`results_dir/<model>/<dataset>/<method>/<run-id>`, with names made fit for folders."""
    return results_dir.joinpath(*map(_folder_name, (model, dataset, method)), run_id)


def run_folders(results_dir: Path, *, dataset: str, method: str) -> list[Path]:
    """The folders of runs of a method on a dataset, whatever the model, that have a status."""
    pattern = "/".join(["*", _folder_name(dataset), _folder_name(method), "*", STATUS])
    return [path.parent for path in sorted(results_dir.glob(pattern))]


def _folder_name(name: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", name.strip().replace("/", "--")).strip(".-") or "unnamed"


def is_held(path: Path) -> bool:
    """Whether a process on this machine, or on one that shares its locks, writes a run folder."""
    lock = FileLock(path / LOCK)
    if not (path / LOCK).exists():
        return False
    try:
        with lock.acquire(blocking=False):
            return False
    except Timeout:
        return True
