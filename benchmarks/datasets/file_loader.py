"""What loaders of published files share: `dataset.path`, splits, layouts, faults.

A loader of one dataset adds its source and licence, its splits, and one function from a row to a
prompt. Files may be of any layout of `benchmarks.datasets.layouts`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.datasets.base import Dataset, DatasetLoader, Prompt, Task
from benchmarks.datasets.layouts import read_table
from benchmarks.datasets.reader import DatasetError, Faults, OnError
from benchmarks.datasets.rows import Row, parse_rows

SPLIT_FILES = ("{}.jsonl", "{}.jsonl.gz", "{}.json", "{}.parquet", "{}-*.parquet")
"""How the files of a split are called in a folder; all that the first match finds are read."""

SHORT_ANSWER = "Answer with a short phrase."
"""What follows a question whose answer is compared with short answers, after a blank line."""


@dataclass(frozen=True, kw_only=True)
class FileLoader(DatasetLoader):
    """Base of loaders that read files.

    Attributes:
        needs: What `dataset.path` has to name, for the message when it is missing.
        one_file: The splits that one file holds.
        files: Patterns of the published files' names, which hold the splits of `one_file`.
        first_number: Number of the first row, where rows have no ids.
        path: A file, or a folder with one of `files` or with a file per split (`test.jsonl`).
        on_error: At a bad row, `stop` or `skip` it; skipped rows are counted in the dataset.
    """

    needs: ClassVar[str] = "FILE_OR_FOLDER"
    one_file: ClassVar[tuple[str, ...]] = ("test",)
    files: ClassVar[tuple[str, ...]] = ()
    first_number: ClassVar[int] = 1

    path: str | None = None
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        Faults(on_error=self.on_error)  # Refuses any other word.

    @abstractmethod
    def prompt(self, row: Row) -> Prompt:
        """The prompt of a row.

        Raises:
            DatasetError: If the row is not as expected.
        """

    def load(self, split: str) -> Dataset:
        """Read one split.

        Raises:
            DatasetError: If there is no such split, nothing to read it from, or it is faulty.
        """
        self.check_split(split)
        faults = Faults(on_error=self.on_error)
        source, rows = self.rows(split, faults)
        chosen = [row for row in rows if self.is_in(row, split)]
        if rows and not chosen:
            raise DatasetError(f"{source}: none of {len(rows)} rows is of the {split} split")
        return Dataset.from_prompts(
            self.parse(chosen, faults),
            name=self.name,
            split=split,
            source=source,
            skipped=faults.found,
        )

    def rows(self, split: str, faults: Faults) -> tuple[str, list[Row]]:
        """Where the rows of a split come from, in words, and the rows.

        Raises:
            DatasetError: If `path` is not given or has no such split, or a file cannot be read.
        """
        if not self.path:
            raise DatasetError(f"dataset={self.name} needs dataset.path={self.needs}")
        files = self._find(Path(self.path).expanduser(), split)
        rows: list[Row] = []
        for file in files:
            rows += self.read(file, faults, self.first_number + len(rows))
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        return f"{files[0]}{more}", rows

    def read(self, file: Path, faults: Faults, first_number: int) -> list[Row]:
        """The rows of one file.

        Raises:
            DatasetError: If it cannot be read, or at a bad row unless `faults` skips it.
        """
        return read_table(file, faults, first_number)

    def is_in(self, row: Row, split: str) -> bool:
        """Whether a row of what was read is of a split; for files that hold several."""
        return True

    def parse(self, rows: Sequence[Row], faults: Faults) -> tuple[Prompt, ...]:
        """The prompts of the rows; bad rows are handled as `faults` says.

        Raises:
            DatasetError: At the first bad row unless `faults` skips it; always if no row is usable.
        """
        return parse_rows(rows, self.prompt, faults)

    def patterns(self, split: str) -> tuple[str, ...]:
        """What the files of a split may be called in a folder, the first choice first."""
        published = self.files if split in self.one_file else ()
        return (*published, *(name.format(split) for name in SPLIT_FILES))

    def _find(self, path: Path, split: str) -> list[Path]:
        if not path.is_dir():
            if split not in self.one_file:
                raise DatasetError(
                    f"{path}: one file is the {' or '.join(self.one_file)} split: {split} needs a "
                    f"folder with {SPLIT_FILES[0].format(split)}"
                )
            return [path]
        for pattern in self.patterns(split):
            if found := sorted(path.glob(pattern)):
                return found
        raise DatasetError(
            f"{path}: no file for the {split} split of dataset={self.name} in this folder: "
            f"expected {', '.join(self.patterns(split))}"
        )


def short_answers(answers: Iterable[str]) -> tuple[str, ...]:
    """Several short answers to one turn as `Prompt.references`: one a line, none twice."""
    lines = dict.fromkeys(" ".join(answer.split()) for answer in answers)
    return ("\n".join(line for line in lines if line),)


def task_of(scorer: str, references: Sequence[str]) -> Task | None:
    """The task of a prompt; None if there is nothing to compare an answer with."""
    return Task(scorer=scorer) if any(references) else None
