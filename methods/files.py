"""Files that are either complete or as they were before, and locks of one process at a time."""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, Timeout

logger = logging.getLogger(__name__)
SILENT_S = 1.0
"""How long a wait for a lock is nothing to tell of, in seconds."""


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that readers see its old or its new content, never a part.

    Of several processes that write it at a time, the last one to end wins.

    Raises:
        OSError: If it cannot be written.
    """
    # Not from tempfile, whose files are closed to all others of a shared folder.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def wait_for(lock: BaseFileLock, what: str) -> AbstractContextManager[Any]:
    """Acquires a lock, however long another process holds it; a long wait is told.

    Args:
        lock: Released at the end of a `with` block, or by the caller.
        what: What the other process does, e.g. `builds the datastore x`.

    Returns:
        For a `with` block.

    Raises:
        OSError: If the lock file cannot be written.
        NotImplementedError: If the file system has no locks.
    """
    try:
        return lock.acquire(timeout=SILENT_S)
    except Timeout:
        logger.info(f"waiting for another process, which {what}")
        return lock.acquire()
