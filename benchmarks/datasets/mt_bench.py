"""MT-Bench: 80 questions of two turns in eight categories, without a task.

References exist for half of the questions, as hints to a judge.

Source: Zheng et al. 2023 (arXiv 2306.05685), repository lm-sys/FastChat, file
fastchat/llm_judge/data/mt_bench/question.jsonl (Apache-2.0). The hub's rows say `prompt` and
`prompt_id` for `turns` and `question_id`, and their ids are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.questions import parse_questions, question
from benchmarks.datasets.reader import Faults
from benchmarks.datasets.rows import Row

OUR_NAME = {"prompt": "turns", "prompt_id": "question_id"}
"""The hub's name of a field -> the published file's."""


@DATASETS.register("mt_bench")
@dataclass(frozen=True, kw_only=True)
class MtBench(HubLoader):
    """`question.jsonl`, which is the test split."""

    files = ("question.jsonl",)
    address = "HuggingFaceH4/mt_bench_prompts"
    pinned = "e3a795c5e9a82ee40611c416b8a7786c73198991"
    hub_splits: ClassVar[Mapping[str, str]] = {"test": "train"}

    def prompt(self, row: Row) -> Prompt:
        """The question."""
        return question(row)

    def parse(self, rows: Sequence[Row], faults: Faults) -> tuple[Prompt, ...]:
        """All questions have an id, or none."""
        return parse_questions([_renamed(row) for row in rows], faults, self.prompt)


def _renamed(row: Row) -> Row:
    if "turns" in row.fields or "prompt" not in row.fields:
        return row
    fields = {OUR_NAME.get(name, name): value for name, value in row.fields.items()}
    return replace(row, fields=fields)
