"""Strict reader of JSON-lines files: one object per line, and every fault names its path and line.

Harmless differences between published files are read through: a byte-order mark, `\\n`, `\\r\\n` or
`\\r` line ends, blank lines, no final line end, gzip. Whatever would silently change the data is a
fault: broken utf-8, NUL bytes, a cut-off line, a key given twice. NaN and Infinity are read as
floats, since published answer files contain them.
Cost: one pass, one line in memory at a time.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

OnError = Literal["stop", "skip"]

# Bytes are split before decoding: str.splitlines would also split at U+2028 inside a string.
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class DatasetError(ValueError):
    """A dataset that cannot be read as asked; a message about a file begins with `path:line: `."""


@dataclass(kw_only=True)
class Faults:
    """What happens at a bad line: `stop` raises, `skip` notes it and reads on.

    Attributes:
        on_error: `stop` or `skip`. A fault of the whole file always stops.
        found: The faults of the skipped lines, in the order in which they were met.
    """

    on_error: OnError = "stop"
    found: list[DatasetError] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.on_error not in ("stop", "skip"):
            raise ValueError(f"on_error must be 'stop' or 'skip', got {self.on_error!r}")

    def report(self, fault: DatasetError) -> None:
        """Note one bad line.

        Raises:
            DatasetError: The fault itself, with `on_error="stop"`.
        """
        if self.on_error == "stop":
            raise fault from None
        self.found.append(fault)


def read_objects(path: Path, faults: Faults | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file, each with its 1-based line number; blank lines count.

    Args:
        path: A `.jsonl` file, plain or gzipped (recognised by its content, not by its name).
        faults: What to do at a bad line; by default stop.

    Raises:
        DatasetError: At the first bad line unless `faults` skips it; always if the file is missing,
            a folder, a git-LFS pointer, UTF-16, damaged gzip, or has no rows.
    """
    faults = faults or Faults()
    has_rows = False
    with open_bytes(path) as stream:
        for line in _split_lines(stream):
            if not line.content.strip():
                continue
            has_rows = True
            try:
                row = _parse(line)
            except LineError as error:
                faults.report(DatasetError(f"{path}:{line.number}: {error}"))
            else:
                yield line.number, row
    if not has_rows:
        raise DatasetError(f"{path}: no rows: expected one JSON object per line")


def load_json(text: str) -> Any:
    """A JSON value whose objects give each key once and whose texts are Unicode.

    Raises:
        json.JSONDecodeError: If the text is no JSON.
        LineError: If it is JSON, but none that can be taken.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
    except (json.JSONDecodeError, LineError):
        raise
    except (RecursionError, ValueError) as error:
        raise LineError(f"expected a JSON value, found one beyond the limits: {error}") from None
    if "\\ud" in text.lower():
        _check_surrogates(value)
    return value


def describe(value: object) -> str:
    """A JSON value in the words of an error message, shortened."""
    if isinstance(value, str):
        return f"the string {shorten(value)!r}" if value.strip() else "a blank string"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        return "an object"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"the number {value}"


def shorten(text: str, max_chars: int = 40) -> str:
    """The beginning of a text, with an ellipsis where something was left out."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


class LineError(ValueError):
    """What is wrong with one line, without its place."""


class _Line(NamedTuple):
    number: int
    offset: int
    content: bytes
    is_terminated: bool


@contextmanager
def open_bytes(path: Path) -> Iterator[Iterable[bytes]]:
    """The bytes of a file in pieces that end at `\\n`, unzipped if it is gzip.

    Raises:
        DatasetError: If the file is missing, a folder, a git-LFS pointer, UTF-16 or damaged gzip.
    """
    if path.is_dir():
        raise DatasetError(f"{path}: expected a file, found a folder")
    if not path.exists():
        raise DatasetError(f"{path}: no such file (current folder: {Path.cwd()})")
    with path.open("rb") as stream:
        head = stream.peek(64)
        if head.startswith(_LFS_POINTER):
            raise DatasetError(
                f"{path}:1: expected JSON lines, found a git-LFS pointer: "
                "fetch the real file with `git lfs pull`"
            )
        if head.startswith(_UTF16):
            raise DatasetError(f"{path}:1: expected utf-8, found UTF-16: save the file as utf-8")
        if head.startswith(_GZIP):
            try:
                with gzip.GzipFile(fileobj=stream) as unzipped:
                    yield unzipped
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DatasetError(
                    f"{path}: expected a complete gzip file, found damaged data: {error}"
                ) from None
        else:
            yield stream


def _split_lines(stream: Iterable[bytes]) -> Iterator[_Line]:
    number, offset = 1, 0
    for piece in stream:
        for match in _LINE.finditer(piece):
            content, end = match.groups()
            if not content and not end:
                continue
            bom = len(_BYTE_ORDER_MARK) if _starts_with_bom(number, content) else 0
            yield _Line(number, offset + bom, content[bom:], bool(end))
            number += 1
            offset += len(content) + len(end)


def _starts_with_bom(number: int, content: bytes) -> bool:
    return number == 1 and content.startswith(_BYTE_ORDER_MARK)


def _parse(line: _Line) -> dict[str, Any]:
    text = _decode(line)
    if text.lstrip().startswith("["):
        raise LineError(
            "expected a JSON object, found an array: write one object per line "
            "(`jq -c '.[]'` turns an array file into lines)"
        )
    try:
        value = load_json(text)
    except json.JSONDecodeError as error:
        raise LineError(_explain(error, text, line.is_terminated)) from None
    if not isinstance(value, dict):
        raise LineError(f"expected a JSON object, found {describe(value)}")
    return value


def _decode(line: _Line) -> str:
    nul = line.content.find(b"\0")
    if nul >= 0:
        raise LineError(
            f"expected JSON, found a NUL byte at byte {line.offset + nul} of the file, which was "
            "probably cut off while it was written"
        )
    try:
        return line.content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte, before = error.object[error.start], line.content[: error.start].decode("utf-8")
        raise LineError(
            f"expected utf-8, found byte 0x{byte:02x} at byte {line.offset + error.start} of the "
            f"file ({error.reason}), after {before[-20:]!r}"
        ) from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise LineError(f"expected each key once in an object, found {shorten(key)!r} twice")
        fields[key] = value
    return fields


def _explain(error: json.JSONDecodeError, text: str, is_terminated: bool) -> str:
    near = text[max(0, error.pos - 20) : error.pos + 20]
    is_at_end = error.pos >= len(text.rstrip()) or not text.rstrip().endswith("}")
    hint = ""
    if not is_terminated and is_at_end:
        hint = "; the last line is cut off"
    elif text.strip() == "{":
        hint = "; an object must stand on one line (`jq -c .` puts it on one)"
    return (
        f"expected a JSON object, found invalid JSON at column {error.colno} "
        f"({error.msg}) near {near!r}{hint}"
    )


def _check_surrogates(value: Any) -> None:
    """Refuse text such as "\\ud83d" alone, which no tokenizer and no utf-8 file can take."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        raise LineError(f"expected Unicode text, found half a character: \\u{code:04x}") from None
