"""Any question file of one's own: `dataset=jsonl dataset.path=FILE`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Dataset, DatasetLoader
from benchmarks.datasets.questions import read_questions
from benchmarks.datasets.reader import DatasetError, Faults, OnError


@DATASETS.register("jsonl")
@dataclass(frozen=True, kw_only=True)
class Jsonl(DatasetLoader):
    """A JSON-lines file of questions, as `benchmarks.datasets.questions` describes them.

    Attributes:
        path: The file, `.jsonl` or `.jsonl.gz`, relative to the current folder at loading time.
        on_error: At a bad row, `stop` or `skip` it; skipped rows are counted in the dataset.
    """

    path: str | None = None
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        Faults(on_error=self.on_error)  # Refuses any other word.

    def load(self, split: str) -> Dataset:
        """Read the file.

        Raises:
            DatasetError: If the path is not given, the split is not `test`, or the file is faulty.
        """
        if not self.path:
            raise DatasetError("dataset=jsonl needs dataset.path=FILE")
        self.check_split(split)
        faults = Faults(on_error=self.on_error)
        prompts = read_questions(Path(self.path).expanduser(), faults)
        return Dataset.from_prompts(
            prompts, name=self.name, split=split, source=self.path, skipped=faults.found
        )
