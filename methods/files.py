"""Files that are either complete or as they were before."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


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
