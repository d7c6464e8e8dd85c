"""The folder of one run: who may write into it, and what lies in it.

    config.yaml     resolved configuration                               before the first prompt
    env.json        code, hashes, and one description per session        before the first prompt
    requests.jsonl  one row per prompt, repeat and arm                   as they finish
    scores.jsonl    one row per scored answer, if the dataset has scorers  at the end
    examination.json  what the target model says of a lossless method's output  at the end
    summary.json    every metric, computed from these                    at the end
    status.json     running / done / stopped / failed / interrupted, why always

A folder is written by one process at a time, kept apart by a lock that dies with its holder.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import yaml
from filelock import FileLock, Timeout

from benchmarks.files import (
    RunFolderError,
    explain_os_errors,
    file_hash,
    read_json,
    write_atomically,
    write_json,
)
from benchmarks.provenance import timestamp
from benchmarks.records import Request
from benchmarks.row_log import RowLog
from benchmarks.run_files import CONFIG, ENVIRONMENT, LOCK, ROWS, STATUS, SUMMARY

PATIENCE_S = 1.0
"""How long to wait for a lock: who only looks whether a folder is held has it for a moment."""
HASHED = (ROWS, SUMMARY)
State = Literal["running", "done", "stopped", "failed", "interrupted"]


class RunFolderBusy(RunFolderError):
    """Another process is writing into the run folder."""


class RunFolder:
    """A run folder, locked inside a `with` block; how the block ends is how the run ends.

    A finished run is not locked, since it is only read; but see `locked`.

    Attributes:
        path: The folder.
        patience_s: How long to wait for another process that holds it, in seconds.
    """

    def __init__(self, path: Path, patience_s: float = PATIENCE_S) -> None:
        self.path = path
        self.patience_s = patience_s
        self._lock = FileLock(path / LOCK)
        self._log: RowLog | None = None
        self._status: dict[str, Any] = {}

    @property
    def is_done(self) -> bool:
        """Whether the run has finished."""
        return self._status.get("state") == "done"

    @property
    def is_stopped(self) -> bool:
        """Whether the run was stopped early, and could be continued."""
        return self._status.get("state") == "stopped"

    @property
    def num_expected(self) -> int:
        """Rows that an ended run has: all, or those from before it was stopped."""
        return int(self._status["num_rows" if self.is_stopped else "num_expected"])

    @property
    def log(self) -> RowLog:
        """The rows."""
        if self._log is None:
            raise RuntimeError("the rows of a run folder are open after start() only")
        return self._log

    @property
    def session(self) -> int:
        """How many processes worked on this run before this one."""
        return int(self._status["session"])

    def __enter__(self) -> RunFolder:
        """Locks the folder, creating it if need be.

        Raises:
            RunFolderBusy: If another process holds it.
            RunFolderError: If it cannot be created or written.
        """
        self._status = self._read_status()
        if not self.is_done:
            self._acquire(self.patience_s)
        return self

    @contextmanager
    def locked(self, patience_s: float) -> Iterator[None]:
        """Locks a finished run while what was made of its rows is made again.

        Args:
            patience_s: How long to wait for another process that does so, in seconds.

        Raises:
            RunFolderBusy: If another process holds it for longer.
            RunFolderError: If it cannot be written.
        """
        self._acquire(patience_s)
        try:
            yield
        finally:
            self._lock.release()

    def _acquire(self, patience_s: float) -> None:
        with explain_os_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=patience_s)
            except Timeout:
                raise RunFolderBusy(self._describe_holder()) from None
        self._status = self._read_status()

    def start(
        self,
        *,
        config: Mapping[str, Any],
        facts: Mapping[str, Any],
        environment: Mapping[str, Any],
        num_expected: int,
    ) -> None:
        """Writes what is known before the first prompt, and opens the rows.

        Args:
            config: Resolved configuration.
            facts: What belongs to the run: names, hashes, guarantees.
            environment: What belongs to this session: `describe_environment`.
            num_expected: Rows that a complete run has.

        Raises:
            RunFolderError: If a file cannot be written, or the rows of an earlier session cannot
                be read.
        """
        was_failed = self._status.get("state") == "failed"
        earlier = (read_json(self.path / ENVIRONMENT) or {"sessions": []})["sessions"]
        self._status = {
            "session": len(earlier),
            "pid": os.getpid(),
            "host": platform.node(),
            "started": timestamp(),
            "num_expected": num_expected,
        }
        self._write_status("running", None)
        self._write_facts(config, {**facts, "sessions": [*earlier, dict(environment)]})
        # A run that failed as a whole is tried again; its errors have most likely been mended.
        self._log = RowLog(
            self.path / ROWS,
            keep=lambda request: not (was_failed and request.error is not None),
        )

    def assemble(
        self,
        *,
        config: Mapping[str, Any],
        facts: Mapping[str, Any],
        sessions: Sequence[Mapping[str, Any]],
        requests: Sequence[Request],
    ) -> None:
        """Writes a run whose rows were measured elsewhere, in place of `start`.

        Raises:
            RunFolderError: If a file cannot be written.
        """
        self.begin_assembly(num_expected=len(requests))
        self._write_facts(config, {**facts, "sessions": list(sessions)})
        rows = self.path / ROWS
        write_atomically(rows, b"".join(request.to_line() for request in requests))
        self._log = RowLog(rows)

    def begin_assembly(self, *, num_expected: int) -> None:
        """Marks the run as this process's, so that its end is noted whatever it is."""
        self._status = {
            "session": 0,
            "pid": os.getpid(),
            "host": platform.node(),
            "started": timestamp(),
            "num_expected": num_expected,
        }
        self._write_status("running", None)

    def _write_facts(self, config: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        write_atomically(self.path / CONFIG, text.encode())
        write_json(self.path / ENVIRONMENT, environment)

    def note_stop(self, stopped: Mapping[str, Any]) -> None:
        """Writes down that no more rows will be measured, and why, before they are judged.

        Raises:
            RunFolderError: If the file cannot be written.
        """
        self._status["stopped"] = dict(stopped)
        self._write_status("running", None)

    def finish(
        self,
        summary: Mapping[str, Any],
        *,
        failure: str | None = None,
        stopped: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the metrics and ends the run: as `failed` or `stopped` if a reason is given.

        Args:
            summary: The metrics.
            failure: Why the run as a whole failed.
            stopped: Why it was stopped early.
            inputs: By what it is found again before a model is loaded; see `benchmarks.inputs`.

        Raises:
            RunFolderError: If a file cannot be written.
        """
        write_json(self.path / SUMMARY, summary)
        self._status |= {"hashes": self._hashes(), "inputs": dict(inputs or {})}
        state: State = "failed" if failure else "stopped" if stopped else "done"
        self._write_status(state, failure or stopped)

    def renew(self, summarize: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The metrics of a finished run; written again, under its lock, if they differ.

        Args:
            summarize: Computes them from the folder's files.

        Raises:
            RunFolderBusy: If they differ, and another process holds the folder.
            RunFolderError: If a file cannot be written.
        """
        summary = summarize()
        if summary == read_json(self.path / SUMMARY):
            return summary
        with self.locked(self.patience_s):
            summary = summarize()  # Scores may have been added meanwhile.
            write_json(self.path / SUMMARY, summary)
            write_json(self.path / STATUS, self._status | {"hashes": self._hashes()})
        return summary

    def _hashes(self) -> dict[str, str]:
        """By which readers know that files belong together and were not edited."""
        return {name: file_hash(self.path / name) for name in HASHED}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is not None and self._status.get("pid") == os.getpid():
                state: State = "failed" if isinstance(error, Exception) else "interrupted"
                # The disk may be what failed; the first error is the one to report.
                with suppress(RunFolderError):
                    self._write_status(state, f"{type(error).__name__}: {error}".rstrip(": "))
        finally:
            if self._log is not None:
                self._log.close()
            self._lock.release()

    def _write_status(self, state: State, reason: str | None) -> None:
        requests: list[Request] = [] if self._log is None else self._log.requests
        self._status |= {
            "state": state,
            "reason": reason,
            "ended": None if state == "running" else timestamp(),
            "num_rows": len(requests),
            "num_error_rows": sum(request.error is not None for request in requests),
        }
        write_json(self.path / STATUS, self._status)

    def _read_status(self) -> dict[str, Any]:
        return read_json(self.path / STATUS) or {}

    def _describe_holder(self) -> str:
        with suppress(RunFolderError):
            status = self._read_status()
            if status.get("state") == "running":
                return (
                    f"the run folder {self.path} is being written by process {status['pid']} on "
                    f"{status['host']} (started {status['started']}): wait for it to end"
                )
        return f"the run folder {self.path} is being written by another process: wait for it to end"
