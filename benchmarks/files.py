"""Small files that are either complete or absent, and one error for all that can go wrong."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from methods import files


class RunFolderError(RuntimeError):
    """A run folder cannot be used; the message says which, why, and what to do."""


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turns an `OSError` into one `RunFolderError` about `path`.

    Raises:
        RunFolderError: If the body raises `OSError`: no permission, no space, a file in the way.
    """
    try:
        yield
    except OSError as error:
        culprit = Path(os.fsdecode(error.filename)) if error.filename else path
        reason = error.strerror or str(error)
        if isinstance(error, FileExistsError | NotADirectoryError):
            reason += " (a file is in the way of a folder)"
        raise RunFolderError(
            f"cannot use the run folder {path}: {reason}: {culprit}. "
            "Free the place or choose another one with results_dir=..."
        ) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that readers see its old or its new content, never a part.

    Of several processes that write it at a time, the last one to end wins.

    Raises:
        RunFolderError: If it cannot be written.
    """
    with explain_os_errors(path.parent):
        files.write_atomically(path, content)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes an object atomically, indented for people.

    Raises:
        RunFolderError: If it cannot be written.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, f"{text}\n".encode())


def file_hash(path: Path) -> str:
    """The SHA-256 of a file, as 16 hexadecimal digits.

    Raises:
        RunFolderError: If it cannot be read.
    """
    with explain_os_errors(path.parent):
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file, or None if there is no such file.

    Raises:
        RunFolderError: If the file cannot be read or holds something else.
    """
    with explain_os_errors(path.parent):
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise RunFolderError(f"{path}: expected utf-8 text: {error}") from error
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RunFolderError(f"{path}: expected a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise RunFolderError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
