"""Code Alpaca: short programming instructions with answers.

The published file is one list without splits, as is the hub's copy. Every 20th row is `test`, the
others are `train`; prompts are named by their index.

Source: Chaudhary 2023, repository sahil280114/codealpaca (CC-BY-NC-4.0, research use).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt
from benchmarks.datasets.file_loader import task_of
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.rows import Row

TEST_EVERY = 20


@DATASETS.register("codealpaca")
@dataclass(frozen=True, kw_only=True)
class CodeAlpaca(HubLoader):
    """Objects with `instruction`, `input` and `output`."""

    splits = ("test", "train")
    one_file = ("test", "train")
    files = ("code_alpaca*.json",)
    first_number = 0
    address = "sahil2801/CodeAlpaca-20k"
    pinned = "152bb5e9a29651266b018106053980070a0521a1"
    hub_splits: ClassVar[Mapping[str, str]] = {"test": "train"}

    def is_in(self, row: Row, split: str) -> bool:
        """Every 20th row, from the first on, is of the test split."""
        return (row.number % TEST_EVERY == 0) == (split == "test")

    def prompt(self, row: Row) -> Prompt:
        """Instruction and input, a blank line between."""
        instruction, given = row.text("instruction"), row.optional_text("input")
        answer = row.optional_text("output")  # A few published answers are blank.
        references = (answer,) if answer else ()
        return Prompt(
            prompt_id=str(row.number),
            category="codealpaca",
            turns=(f"{instruction}\n\n{given}".strip(),),
            references=references,
            task=task_of("rouge_l", references),
        )
