"""Ended runs as they lie on the disk, and the folders that cannot be used, with the reason.

Nothing is computed here: a table shows what a run wrote when it ended. Raw rows are read only by
who asks for them, since a committed result may come without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from benchmarks.files import RunFolderError, explain_os_errors, file_hash, read_json
from benchmarks.records import SCHEMA_VERSION, Request
from benchmarks.row_log import read_requests
from benchmarks.run_files import CONFIG, ENVIRONMENT, ROWS, STATUS, SUMMARY
from benchmarks.summary_text import stop_note

_FILES = (ENVIRONMENT, STATUS, SUMMARY, ROWS)
"""A folder with one of these is a run folder, whole or not."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A finished run, measured here or imported; or one that was stopped early.

    Attributes:
        path: Its folder.
        summary: `summary.json`: `run` (facts), `metrics`, `categories`, ...
        env: `env.json`: `run`, `code_version`, `hashes`, `sessions`; of an import also `imported`.
        config: `config.yaml`: the resolved configuration.
    """

    path: Path
    summary: Mapping[str, Any]
    env: Mapping[str, Any]
    config: Mapping[str, Any]

    @property
    def facts(self) -> Mapping[str, Any]:
        """Names, hashes and guarantees: model, dataset, method, dtype, ..."""
        facts: Mapping[str, Any] = self.summary["run"]
        return facts

    @property
    def is_imported(self) -> bool:
        """Whether others measured it."""
        return self.env.get("imported") is not None

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped early, and has figures of its first prompts only."""
        return bool(self.summary.get("stopped"))

    @property
    def has_rows(self) -> bool:
        """Whether the raw rows are there."""
        return (self.path / ROWS).exists()

    @cached_property
    def requests(self) -> list[Request]:
        """The raw rows.

        Raises:
            RunFolderError: If they are missing or damaged.
        """
        if not self.has_rows:
            raise RunFolderError(f"{self.path} holds no {ROWS}: its rows were not kept")
        return read_requests(self.path / ROWS)


@dataclass(frozen=True, kw_only=True)
class Unusable:
    """A run folder that cannot be shown.

    Attributes:
        path: The folder.
        reason: Why, and what to do about it.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def read_runs(
    paths: Sequence[Path], *, keep_stopped: bool = False
) -> tuple[list[StoredRun], list[Unusable]]:
    """All runs in or below some folders, each once, in the order of their paths.

    Args:
        paths: Run folders, or folders of runs.
        keep_stopped: Whether runs that were stopped early are wanted, by who marks them.

    Returns:
        The finished runs; the run folders that are half-written, of another version, or mixed up.

    Raises:
        RunFolderError: If a path does not exist, or no run folder is there at all.
    """
    runs: dict[Path, StoredRun] = {}
    unusable: dict[Path, Unusable] = {}
    for path in paths:
        folders = _run_folders(path)
        if not folders:
            reason = "holds no finished run" if path.exists() else "does not exist"
            raise RunFolderError(f"{path} {reason}")
        for folder in folders:
            place = folder.resolve()
            if place in runs or place in unusable:
                continue
            try:
                run = read_run(folder)
            except RunFolderError as error:
                unusable[place] = Unusable(path=folder, reason=str(error))
                continue
            if run.is_stopped and not keep_stopped:
                reason = f"not whole: {stop_note(run.summary)}"
                unusable[place] = Unusable(path=folder, reason=reason)
            else:
                runs[place] = run
    return list(runs.values()), list(unusable.values())


def read_run(folder: Path) -> StoredRun:
    """One finished run, or one that was stopped early.

    Raises:
        RunFolderError: If it has not ended, is damaged, of another version, or mixed with another.
    """
    status = read_json(folder / STATUS) or {}
    state = status.get("state")
    if state not in ("done", "stopped"):
        raise RunFolderError(_explain_state(state, status.get("reason")))
    summary, env = read_json(folder / SUMMARY), read_json(folder / ENVIRONMENT)
    if summary is None or env is None:
        missing = SUMMARY if summary is None else ENVIRONMENT
        raise RunFolderError(f"half-written: it is marked as {state} but has no {missing}")
    for name, value in ((SUMMARY, summary), (ENVIRONMENT, env)):
        _check_version(name, value)
        if not isinstance(value.get("run"), dict):
            raise RunFolderError(f"{name} lacks the facts of its run; measure anew")
    _check_shape(summary)
    run = StoredRun(path=folder, summary=summary, env=env, config=_read_config(folder))
    _check_unmixed(run, status)
    return run


def _run_folders(path: Path) -> list[Path]:
    """Folders with a file of a run, sorted; what lies below one belongs to it."""
    found = []
    for root, folders, files in os.walk(path):
        folders.sort()
        if any(name in files for name in _FILES):
            found.append(Path(root))
            folders.clear()
    return found


def _explain_state(state: object, reason: object) -> str:
    because = f" ({reason})" if reason else ""
    if state == "running":
        return "not finished: still running, or killed; the same command continues it"
    if state == "interrupted":
        return f"not finished: interrupted{because}; the same command continues it"
    if state == "sharded":
        return "not finished: some of its shards are not done"
    if state == "failed":
        return f"the run failed{because}"
    return f"half-written: it has no {STATUS} that says done"


def _check_version(name: str, value: Mapping[str, Any]) -> None:
    version = value.get("schema_version")
    if version != SCHEMA_VERSION:
        raise RunFolderError(
            f"written by another version: {name} has schema_version {version}, this code reads "
            f"{SCHEMA_VERSION}; measure anew"
        )


def _check_shape(summary: Mapping[str, Any]) -> None:
    """Refuses what no table could be made of."""
    groups = summary.get("metrics"), *(summary.get("categories") or {"": {}}).values()
    for metrics in groups:
        if not isinstance(metrics, dict) or not all(map(_is_metric, metrics.values())):
            raise RunFolderError(f"{SUMMARY} holds something that is no metric: edited by hand?")


def _is_metric(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    number, interval = value.get("value"), value.get("interval")
    numbers = [number, *(interval if isinstance(interval, list) else [])]
    return all(n is None or isinstance(n, int | float) for n in numbers)


def _check_unmixed(run: StoredRun, status: Mapping[str, Any]) -> None:
    if run.is_stopped != (status["state"] == "stopped"):
        raise RunFolderError(f"{SUMMARY} and {STATUS} disagree on an early stop")
    ids = {run.summary["run"]["run_id"], run.env["run"]["run_id"]}
    if len(ids) > 1:
        raise RunFolderError(f"files of several runs are mixed: {' and '.join(sorted(ids))}")
    for name, expected in (status.get("hashes") or {}).items():
        if (name != ROWS or run.has_rows) and file_hash(run.path / name) != expected:
            raise RunFolderError(
                f"{name} is not the one that the run wrote: edited, cut off, or of another run"
            )
    if run.has_rows and "num_rows" in status:
        with explain_os_errors(run.path):
            num_rows = (run.path / ROWS).read_bytes().count(b"\n")
        if num_rows != status["num_rows"]:
            raise RunFolderError(
                f"{ROWS} has {num_rows} rows, but the run ended with {status['num_rows']}: mixed "
                "with another run, or cut off"
            )


def _read_config(folder: Path) -> Mapping[str, Any]:
    path = folder / CONFIG
    if not path.exists():
        return {}
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise RunFolderError(f"{CONFIG} is damaged: {str(error).splitlines()[0]}") from error
    return config if isinstance(config, dict) else {}
