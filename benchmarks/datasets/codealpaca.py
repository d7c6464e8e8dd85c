"""Code Alpaca: short programming instructions with answers.

The published file is one list without splits. Every 20th row is `test`, the others are `train`.

Source: Chaudhary 2023, repository sahil280114/codealpaca (CC-BY-NC-4.0, research use).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Dataset, DatasetLoader, Prompt
from benchmarks.datasets.reader import DatasetError, Faults, OnError
from benchmarks.datasets.rows import Row, parse_rows, read_array_rows

TEST_EVERY = 20


@DATASETS.register("codealpaca")
@dataclass(frozen=True, kw_only=True)
class CodeAlpaca(DatasetLoader):
    """A JSON list of objects with `instruction`, `input` and `output`; prompts are named by index.

    Attributes:
        path: The file.
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
            raise DatasetError("dataset=codealpaca needs dataset.path=FILE (a JSON list)")
        self.check_split(split)
        faults = Faults(on_error=self.on_error)
        rows = read_array_rows(Path(self.path).expanduser(), faults)
        chosen = [row for row in rows if (row.line % TEST_EVERY == 0) == (split == "test")]
        prompts = parse_rows(chosen, _prompt, faults)
        return Dataset.from_prompts(
            prompts, name=self.name, split=split, source=self.path, skipped=faults.found
        )


def _prompt(row: Row) -> Prompt:
    instruction, given = row.text("instruction"), row.optional_text("input")
    answer = row.optional_text("output")  # A few published answers are blank.
    return Prompt(
        prompt_id=str(row.line),
        category="codealpaca",
        turns=(f"{instruction}\n\n{given}".strip(),),
        references=(answer,) if answer else (),
    )
