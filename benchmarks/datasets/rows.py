"""From rows of a file to prompts: typed field access whose errors name the place.

A loader writes one function from `Row` to `Prompt`; reading, skipping and the check for duplicate
ids are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.datasets.base import Prompt
from benchmarks.datasets.reader import (
    DatasetError,
    Faults,
    describe,
    read_objects,
    shorten,
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One object of a dataset, with its place.

    Attributes:
        path: The file, or the address on the hub.
        line: 1-based line number; where there are no lines, the index from 0.
        number: The position in the dataset, which names a row that has no id of its own. It does
            not depend on the layout: line 1 of a file of lines and index 0 of a list are the same.
        fields: The object; fields that nobody asks for are ignored.
    """

    path: Path | str
    line: int
    number: int
    fields: dict[str, Any]

    def has(self, name: str) -> bool:
        """Whether the field is there and not null: exporters write null for "absent"."""
        return self.fields.get(name) is not None

    def text(self, name: str) -> str:
        """A string that is not blank.

        Raises:
            DatasetError: If the field is anything else, or missing.
        """
        value = self.fields.get(name)
        if not isinstance(value, str) or not value.strip():
            raise self.fault(name, "a string that is not blank")
        return value

    def optional_text(self, name: str) -> str:
        """A string, or "" if the field is absent, null or blank.

        Raises:
            DatasetError: If the field is anything else.
        """
        value = self.fields.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            return ""
        return self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of one or more strings, none of them blank.

        Raises:
            DatasetError: If the field is anything else, or missing.
        """
        expected = "a list of one or more strings that are not blank"
        values = self.fields.get(name)
        if not isinstance(values, list) or not values:
            raise self.fault(name, expected)
        for position, value in enumerate(values, start=1):
            if not isinstance(value, str) or not value.strip():
                raise self.fault(name, expected, f"{describe(value)} as item {position}")
        return tuple(values)

    def fault(self, name: str, expected: str, found: str | None = None) -> DatasetError:
        """The error for a field that is not as expected; `found` describes it by default."""
        if found is None and name in self.fields:
            found = describe(self.fields[name])
        elif found is None:
            found = f"nothing (this row has: {shorten(', '.join(self.fields), 100) or 'no fields'})"
        return DatasetError(
            f"{self.path}:{self.line}: field {name!r}: expected {expected}, got {found}"
        )


def read_rows(path: Path, faults: Faults, first_number: int = 1) -> list[Row]:
    """All rows of a file of JSON lines; bad lines are handled as `faults` says.

    Raises:
        DatasetError: As `read_objects`.
    """
    return [
        Row(path=path, line=line, number=first_number + line - 1, fields=fields)
        for line, fields in read_objects(path, faults)
    ]


def parse_rows(
    rows: Iterable[Row], parse: Callable[[Row], Prompt], faults: Faults
) -> tuple[Prompt, ...]:
    """One prompt per row; rows that `parse` refuses are handled as `faults` says.

    Of two rows with one id, the first is kept and the second is a fault.

    Raises:
        DatasetError: At the first bad row unless `faults` skips it; always if no row is usable.
    """
    prompts: list[Prompt] = []
    line_of_id: dict[str, int] = {}
    for row in rows:
        try:
            prompt = parse(row)
            _check_new(prompt.prompt_id, row, line_of_id)
        except DatasetError as fault:
            faults.report(fault)
        else:
            line_of_id[prompt.prompt_id] = row.line
            prompts.append(prompt)
    if not prompts:
        raise _no_usable_rows(faults)
    return tuple(prompts)


def _check_new(prompt_id: str, row: Row, line_of_id: dict[str, int]) -> None:
    if prompt_id in line_of_id:
        raise DatasetError(
            f"{row.path}:{row.line}: expected a new id, "
            f"got {prompt_id!r}, which line {line_of_id[prompt_id]} has already"
        )


def _no_usable_rows(faults: Faults) -> DatasetError:
    first = faults.found[0] if faults.found else "no rows"
    return DatasetError(f"{first} (no row is usable, {len(faults.found)} are bad)")
