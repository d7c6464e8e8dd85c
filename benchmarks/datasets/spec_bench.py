"""Spec-Bench: 480 questions, 80 of each of six kinds; MT-Bench is the one with two turns.

The turns are the file's own, instructions included. `math_reasoning` is scored as GSM8K, `rag` by
its short answers, `translation` and `summarization` by ROUGE-L; the others have no task, since the
file has no references for `qa`, and MT-Bench's are hints to a judge.

Source: Xia et al. 2024 (arXiv 2401.07851), repository hemingkx/Spec-Bench, file
data/spec_bench/question.jsonl (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt
from benchmarks.datasets.file_loader import FileLoader, task_of
from benchmarks.datasets.questions import parse_questions, question
from benchmarks.datasets.reader import Faults
from benchmarks.datasets.rows import Row, read_rows

SCORER_OF = {
    "math_reasoning": "gsm8k",
    "translation": "rouge_l",
    "summarization": "rouge_l",
    "rag": "short_answer",
}
"""Category -> registered name of its scorer."""


@DATASETS.register("spec_bench")
@dataclass(frozen=True, kw_only=True)
class SpecBench(FileLoader):
    """`question.jsonl`, which is the test split."""

    needs = "FILE (data/spec_bench/question.jsonl of the repository hemingkx/Spec-Bench)"
    files = ("question.jsonl",)

    def read(self, file: Path, faults: Faults, first_number: int) -> list[Row]:
        """Lines, as Spec-Bench's own scripts read them."""
        return read_rows(file, faults, first_number)

    def prompt(self, row: Row) -> Prompt:
        """The question, and how its category is scored."""
        prompt = question(row)
        scorer = SCORER_OF.get(prompt.category)
        return (
            prompt if scorer is None else replace(prompt, task=task_of(scorer, prompt.references))
        )

    def parse(self, rows: Sequence[Row], faults: Faults) -> tuple[Prompt, ...]:
        """All questions have an id, or none."""
        return parse_questions(rows, faults, self.prompt)
