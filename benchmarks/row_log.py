"""`requests.jsonl`: rows are appended whole and never twice, and a torn end is cut off.

A row is one `write` of a complete line on an append-only descriptor, then `fsync`. Whatever kills
the process leaves complete lines and at most one torn end behind.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

from benchmarks.files import RunFolderError, explain_os_errors, write_atomically
from benchmarks.records import Request, RequestKey


class RowLog:
    """An open `requests.jsonl`.

    Attributes:
        requests: All rows, in file order.
    """

    def __init__(self, path: Path, keep: Callable[[Request], bool] = lambda _: True) -> None:
        """Cuts off a torn end, reads the rest, and takes out the rows that `keep` is false for.

        Raises:
            RunFolderError: If the file cannot be used, or a line before the last is damaged.
        """
        rows, num_bytes = _read(path)
        self.requests = [request for request in rows if keep(request)]
        self._keys = {request.key for request in self.requests}
        self._path = path
        if len(self.requests) < len(rows):
            content = b"".join(request.to_line() for request in self.requests)
            write_atomically(path, content)
            num_bytes = len(content)
        with explain_os_errors(path.parent):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.ftruncate(self._descriptor, num_bytes)

    def __contains__(self, key: RequestKey) -> bool:
        return key in self._keys

    def append(self, request: Request) -> None:
        """Adds a row; it is on the disk when this returns.

        Raises:
            RunFolderError: If the disk is full or the file cannot be written.
            ValueError: If there is a row with this key.
        """
        if request.key in self._keys:
            raise ValueError(f"request {request.key} is recorded already")
        line = request.to_line()
        with explain_os_errors(self._path.parent):
            if os.write(self._descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            os.fsync(self._descriptor)
        self._keys.add(request.key)
        self.requests.append(request)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


def read_requests(path: Path) -> list[Request]:
    """The complete rows of a file, which may belong to a run that is still going on.

    Raises:
        RunFolderError: If the file cannot be read, or a line before the last is damaged.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[list[Request], int]:
    """The complete rows, and how many bytes of the file they take."""
    with explain_os_errors(path.parent):
        content = path.read_bytes() if path.exists() else b""
    # Not splitlines(), which would also split at other line ends inside the bytes of a row.
    lines = content.split(b"\n")[:-1]
    requests: dict[RequestKey, Request] = {}
    num_bytes = 0
    for number, line in enumerate(lines, start=1):
        if number == len(lines) and not _is_json(line):
            break
        request = _parse(line, f"{path}:{number}")
        if request.key in requests:
            raise RunFolderError(f"{path}:{number}: request {request.key} is recorded twice")
        requests[request.key] = request
        num_bytes += len(line) + 1
    return list(requests.values()), num_bytes


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _parse(line: bytes, place: str) -> Request:
    try:
        return Request.from_line(line)
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{place}: expected a row of a run, found a damaged line "
            f"({type(error).__name__}: {error}). Move the run folder away to measure anew"
        ) from error
