"""Processes that tests start: waited for as long as a busy machine needs, and never left behind."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

PATIENCE_S = 600.0
"""How long a test waits before it calls a process hung; one that works takes seconds."""


class Child:
    """A process whose output goes to files: it never stops for want of a reader.

    Attributes:
        process: Its input is a pipe that is open, and empty, until `release` or `finish`.
    """

    def __init__(
        self, command: Sequence[str | Path], out: IO[bytes], err: IO[bytes], **options: Any
    ) -> None:
        self._out, self._err = out, err
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=err, **options
        )

    @property
    def out(self) -> str:
        """What it has written to stdout so far."""
        return _text(self._out)

    @property
    def err(self) -> str:
        """What it has written to stderr so far."""
        return _text(self._err)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until the condition holds; it is looked at fifty times a second.

        Raises:
            AssertionError: If the process ends before, or the patience does; with its output.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            code = self.process.poll()
            # The condition may have come true, and the process ended, since the look.
            assert code is None or condition(), f"ended with {code}: {self.out}{self.err}"
            assert time.monotonic() < deadline, f"nothing in {PATIENCE_S} s: {self.out}{self.err}"
            time.sleep(0.02)

    def release(self) -> None:
        """Ends its input, for which one that is held waits."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def finish(self) -> tuple[int, str, str]:
        """Releases it and waits for its end: exit code, stdout and stderr.

        Raises:
            AssertionError: If the patience ends before, with its output.
        """
        self.release()
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end in {PATIENCE_S} s: {self.out}{self.err}") from None
        return code, self.out, self.err

    def kill(self) -> None:
        """Ends it, if it has not ended."""
        self.process.kill()
        self.process.wait()


@contextmanager
def started(command: Sequence[str | Path], **options: Any) -> Iterator[Child]:
    """A process inside a `with` block, which ends it however the block ends.

    Args:
        command: The program and its arguments.
        options: Of `subprocess.Popen`.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = Child(command, out, err, **options)
        try:
            yield child
        finally:
            child.kill()
            child.release()


def _text(file: IO[bytes]) -> str:
    # Not by seek: the process writes at the position of this descriptor.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
