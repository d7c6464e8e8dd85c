"""`requests.jsonl`: rows are appended whole and never twice, and a torn end is cut off.

A row is one `write` of a complete line on an append-only descriptor, then `fsync`. Whatever kills
the process leaves complete lines and at most one torn end behind.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from benchmarks.files import RunFolderError, explain_os_errors
from benchmarks.records import Request, RequestKey


class RowLog:
    """An open `requests.jsonl`.

    Attributes:
        requests: All rows, in file order.
    """

    def __init__(self, path: Path) -> None:
        """Cuts off a torn end and reads the rest.

        Raises:
            RunFolderError: If the file cannot be used, or a line before the last is damaged.
        """
        self._path = path
        self.requests, num_bytes = _read(path)
        self._keys = {request.key for request in self.requests}
        with explain_os_errors(path.parent):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._descriptor = os.open(path, flags, 0o644)
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

    def drop(self, is_unwanted: Callable[[Request], bool]) -> None:
        """Takes rows out: the file is replaced by one without them.

        Raises:
            RunFolderError: If it cannot be written.
        """
        kept = [request for request in self.requests if not is_unwanted(request)]
        if len(kept) == len(self.requests):
            return
        self.close()
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        with explain_os_errors(self._path.parent):
            temporary.write_bytes(b"".join(request.to_line() for request in kept))
            os.replace(temporary, self._path)
        self.__init__(self._path)  # type: ignore[misc]

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
    requests: list[Request] = []
    keys: set[RequestKey] = set()
    num_bytes = 0
    for number, line in enumerate(lines, start=1):
        try:
            request = Request.from_line(line)
        except (KeyError, TypeError, ValueError) as error:
            if number == len(lines):
                break
            raise RunFolderError(
                f"{path}:{number}: expected a row of a run, found a damaged line "
                f"({type(error).__name__}: {error}). Move the run folder away to measure anew"
            ) from error
        if request.key in keys:
            raise RunFolderError(f"{path}:{number}: request {request.key} is recorded twice")
        keys.add(request.key)
        requests.append(request)
        num_bytes += len(line) + 1
    return requests, num_bytes
