"""The layouts in which datasets are published: JSON lines, one JSON list, parquet.

The content of a file says which it is, not its name; the first two may be gzipped.
Cost: a list and a parquet file are held in memory as a whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.datasets.reader import (
    DatasetError,
    Faults,
    LineError,
    describe,
    load_json,
    open_bytes,
)
from benchmarks.datasets.rows import Row, read_rows

NEEDS_EXTRA = "pip install '.[data]'"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PARQUET = b"PAR1"


def read_table(path: Path, faults: Faults, first_number: int = 1) -> list[Row]:
    """All rows of a file of any layout; bad rows are handled as `faults` says.

    Args:
        path: The file.
        faults: What to do at a bad row.
        first_number: Number of the first row.

    Raises:
        DatasetError: As `read_rows`; for a list that is none, a damaged parquet file, or a missing
            package always.
    """
    start = _first_line(path).removeprefix(_BYTE_ORDER_MARK).lstrip()
    if start.startswith(_PARQUET):
        return _parquet_rows(path, first_number)
    if start.startswith(b"["):
        return _list_rows(path, faults, first_number)
    return read_rows(path, faults, first_number)


def _first_line(path: Path) -> bytes:
    """The first that is not blank."""
    with open_bytes(path) as stream:
        return next((line for line in stream if line.removeprefix(_BYTE_ORDER_MARK).strip()), b"")


def _list_rows(path: Path, faults: Faults, first_number: int) -> list[Row]:
    """The objects of a file that is one list; `line` is the index in the list, from 0."""
    rows = []
    for index, item in enumerate(_read_list(path)):
        if isinstance(item, dict):
            rows.append(Row(path=path, line=index, number=first_number + index, fields=item))
        else:
            fault = f"{path}:{index}: expected a JSON object, found {describe(item)}"
            faults.report(DatasetError(fault))
    return rows


def _read_list(path: Path) -> list[Any]:
    with open_bytes(path) as stream:
        content = b"".join(stream)
    try:
        value = load_json(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DatasetError(
            f"{path}:{error.lineno}: expected a JSON list, found invalid JSON at column "
            f"{error.colno} ({error.msg})"
        ) from None
    except (UnicodeDecodeError, LineError) as error:
        raise DatasetError(f"{path}: expected a JSON list: {error}") from None
    if not isinstance(value, list) or not value:
        raise DatasetError(f"{path}: expected a JSON list with items, found {describe(value)}")
    return value


def _parquet_rows(path: Path, first_number: int) -> list[Row]:
    """The rows of a parquet file; `line` is the row, from 0."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table as read_parquet
    except ImportError:
        raise DatasetError(
            f"{path}: a parquet file needs the package pyarrow: {NEEDS_EXTRA}"
        ) from None
    try:
        items = read_parquet(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise DatasetError(f"{path}: expected a parquet file: {error}") from None
    if not items:
        raise DatasetError(f"{path}: no rows in this parquet file")
    return [
        Row(path=path, line=index, number=first_number + index, fields=item)
        for index, item in enumerate(items)
    ]
