"""MBPP: 974 short Python tasks with three tests each; `sanitized` is the part checked by hand.

The turn is the task followed by its tests, in the words of the prompt that the owners publish
without its few-shot frame, and asks for a code block. `\\r\\n`, in which the published code is
written, becomes `\\n`. The splits are the owners': `task_id` 11 to 510 test, 511 to 600 validation,
601 to 974 train; 1 to 10 are few-shot examples and of no split.

Source: Austin et al. 2021 (arXiv 2108.07732), repository google-research/google-research, folder
mbpp, mbpp.jsonl and sanitized-mbpp.json (CC-BY-4.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt, Task
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.reader import DatasetError
from benchmarks.datasets.rows import Row

IDS = {"test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}
"""Split -> its task ids."""
INSTRUCTION = "Answer with one Python code block."
TASK_FIELD = {"full": "text", "sanitized": "prompt"}


@DATASETS.register("mbpp")
@dataclass(frozen=True, kw_only=True)
class Mbpp(HubLoader):
    """One file for all splits; prompts are named by `task_id`.

    Attributes:
        config: `full`, or `sanitized`.
    """

    splits = ("test", "train", "validation")
    one_file = splits
    address = "google-research-datasets/mbpp"
    pinned = "4bb6404fdc6cacfda99d4ac4205087b89d32030c"

    config: Literal["full", "sanitized"] = "full"

    @property
    def config_name(self) -> str:
        """The hub has the same names."""
        return self.config

    def patterns(self, split: str) -> tuple[str, ...]:
        """The published name of the chosen part."""
        name = "mbpp.jsonl" if self.config == "full" else "sanitized-mbpp.json"
        return (name, *super().patterns(split))

    def is_in(self, row: Row, split: str) -> bool:
        """By the task id; a row without a number is left to be reported as a fault."""
        task_id = row.fields.get("task_id")
        return not isinstance(task_id, int) or task_id in IDS[split]

    def prompt(self, row: Row) -> Prompt:
        """The task, and what its tests need."""
        if not isinstance(row.fields.get("task_id"), int):
            raise row.fault("task_id", "an integer")
        tests = [_unix(test) for test in row.texts("test_list")]
        task = f"{self._text(row)} Your code should pass these tests:"
        return Prompt(
            prompt_id=str(row.fields["task_id"]),
            category="mbpp",
            turns=("\n\n".join([task, "\n".join(tests), INSTRUCTION]),),
            references=(_unix(row.text("code")),),
            task=Task(scorer="mbpp", data={"setup": self._setup(row), "tests": tests}),
        )

    def _text(self, row: Row) -> str:
        name = TASK_FIELD[self.config]
        if name not in row.fields and any(other in row.fields for other in TASK_FIELD.values()):
            other = "sanitized" if self.config == "full" else "full"
            raise DatasetError(
                f"{row.path}:{row.line}: expected a row of dataset.config={self.config} with the "
                f"field {name!r}, got one of dataset.config={other}"
            )
        return _unix(row.text(name)).strip()

    def _setup(self, row: Row) -> str:
        if self.config == "full":
            return _unix(row.optional_text("test_setup_code"))
        return "\n".join(row.texts("test_imports")) if row.fields.get("test_imports") else ""


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")
