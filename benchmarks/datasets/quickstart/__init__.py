"""A small dataset that ships with the project, so that a first run needs no download.

`test` has 24 prompts and `train`, from which a datastore can be built, 72, evenly over the six
kinds of task of Spec-Bench, each with a reference answer. The texts were written for this project
(Apache-2.0), about invented people and places or well-known facts; the two splits share no 13-gram
of words. It is too small for a result to be published.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import ClassVar

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Dataset, DatasetLoader
from benchmarks.datasets.questions import read_questions
from benchmarks.datasets.reader import Faults


@DATASETS.register("quickstart")
@dataclass(frozen=True, kw_only=True)
class Quickstart(DatasetLoader):
    """The packaged files `test.jsonl` and `train.jsonl`."""

    splits: ClassVar[tuple[str, ...]] = ("test", "train")

    def answers(self, model_name: str) -> Path | None:
        """`answers-MODEL.jsonl`, made by `scripts/build_datastore.py ... source=generated`."""
        path = Path(__file__).parent / f"answers-{model_name}.jsonl"
        return path if path.exists() else None

    def load(self, split: str) -> Dataset:
        """Read one of the two files.

        Raises:
            DatasetError: If the split is neither `test` nor `train`.
        """
        self.check_split(split)
        file = resources.files(__name__) / f"{split}.jsonl"
        with resources.as_file(file) as path:
            prompts = read_questions(path, Faults())
        return Dataset.from_prompts(
            prompts, name=self.name, split=split, source=f"packaged file {split}.jsonl"
        )
