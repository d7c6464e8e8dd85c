"""Any question file of one's own: `dataset=jsonl dataset.path=FILE`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt
from benchmarks.datasets.file_loader import FileLoader
from benchmarks.datasets.questions import parse_questions, question
from benchmarks.datasets.reader import Faults
from benchmarks.datasets.rows import Row, read_rows


@DATASETS.register("jsonl")
@dataclass(frozen=True, kw_only=True)
class Jsonl(FileLoader):
    """A JSON-lines file of questions, as `benchmarks.datasets.questions` describes them."""

    needs = "FILE"

    def read(self, file: Path, faults: Faults, first_number: int) -> list[Row]:
        """Lines only: the name of the dataset is a promise."""
        return read_rows(file, faults, first_number)

    def prompt(self, row: Row) -> Prompt:
        """The question; it has no task, since nobody can say what is right."""
        return question(row)

    def parse(self, rows: Sequence[Row], faults: Faults) -> tuple[Prompt, ...]:
        """All questions have an id, or none."""
        return parse_questions(rows, faults, self.prompt)
