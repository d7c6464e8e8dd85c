"""NQ-open: questions asked of a search engine, with one or more short answers.

The turn is the question and a request for a short phrase. `test` is what is published as `dev` or
`validation`: no answers to another part are public. Prompts are named by their line.

Source: Lee et al. 2019 (arXiv 1906.00300), of Natural Questions (Kwiatkowski et al. 2019);
repository google-research-datasets/natural-questions, folder nq_open (CC-BY-SA-3.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt, Task
from benchmarks.datasets.file_loader import SHORT_ANSWER, short_answers
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.rows import Row


@DATASETS.register("nq_open")
@dataclass(frozen=True, kw_only=True)
class NqOpen(HubLoader):
    """`NQ-open.dev.jsonl` is test, `NQ-open.train.jsonl` is train; one file is the test split."""

    splits = ("test", "train")
    address = "google-research-datasets/nq_open"
    pinned = "5dd9790a83002ad084ddeb7c420dc716852c6f28"
    hub_config = "nq_open"
    hub_splits: ClassVar[Mapping[str, str]] = {"test": "validation"}

    def patterns(self, split: str) -> tuple[str, ...]:
        """The published names."""
        name = "NQ-open.dev.jsonl" if split == "test" else "NQ-open.train.jsonl"
        return (name, *super().patterns(split))

    def prompt(self, row: Row) -> Prompt:
        """Question and answers."""
        return Prompt(
            prompt_id=str(row.number),
            category="nq_open",
            turns=(f"{row.text('question')}\n\n{SHORT_ANSWER}",),
            references=short_answers(row.texts("answer")),
            task=Task(scorer="short_answer"),
        )
