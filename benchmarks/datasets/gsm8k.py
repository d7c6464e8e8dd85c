"""GSM8K: grade-school arithmetic problems with worked answers; `####` comes before the number.

Source: Cobbe et al. 2021 (arXiv 2110.14168); repository openai/grade-school-math (MIT).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Dataset, DatasetLoader, Prompt
from benchmarks.datasets.reader import DatasetError, Faults, OnError
from benchmarks.datasets.rows import Row, parse_rows, read_rows


@DATASETS.register("gsm8k")
@dataclass(frozen=True, kw_only=True)
class Gsm8k(DatasetLoader):
    """`train.jsonl` and `test.jsonl` of a folder; prompts are named by their line.

    Attributes:
        path: The folder; or one file, which is the test split then.
        on_error: At a bad row, `stop` or `skip` it.
    """

    splits: ClassVar[tuple[str, ...]] = ("test", "train")

    path: str | None = None
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        Faults(on_error=self.on_error)  # Refuses any other word.

    def load(self, split: str) -> Dataset:
        """Read one split.

        Raises:
            DatasetError: If the path is not given, there is no such split, or the file is faulty.
        """
        if not self.path:
            raise DatasetError("dataset=gsm8k needs dataset.path=FOLDER (train.jsonl, test.jsonl)")
        self.check_split(split)
        path = Path(self.path).expanduser()
        if split != "test" and path.is_file():
            raise DatasetError(f"{path}: one file is the test split: {split} needs a folder")
        file = path / f"{split}.jsonl" if path.is_dir() else path
        faults = Faults(on_error=self.on_error)
        prompts = parse_rows(read_rows(file, faults), _prompt, faults)
        return Dataset.from_prompts(
            prompts, name=self.name, split=split, source=str(file), skipped=faults.found
        )


def _prompt(row: Row) -> Prompt:
    return Prompt(
        prompt_id=str(row.line),
        category="gsm8k",
        turns=(row.text("question"),),
        references=(row.text("answer"),),
    )
