"""HumanEval: 164 Python functions to be completed from signature and docstring.

The turn asks for the whole function in a code block. The reference is the body, as published.

Source: Chen et al. 2021 (arXiv 2107.03374), repository openai/human-eval, file
data/HumanEval.jsonl.gz (MIT).
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt, Task
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.rows import Row

INSTRUCTION = (
    "Complete the following Python function. Answer with the whole function in one code block."
)


@DATASETS.register("humaneval")
@dataclass(frozen=True, kw_only=True)
class HumanEval(HubLoader):
    """One file, which is the test split; prompts are named by `task_id`."""

    files = ("HumanEval.jsonl.gz", "HumanEval.jsonl")
    address = "openai/openai_humaneval"
    pinned = "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544"
    hub_config = "openai_humaneval"

    def prompt(self, row: Row) -> Prompt:
        """The function, and what its tests need."""
        beginning = row.text("prompt")
        data = {name: row.text(name) for name in ("prompt", "test", "entry_point")}
        return Prompt(
            prompt_id=row.text("task_id"),
            category="humaneval",
            turns=(f"{INSTRUCTION}\n\n```python\n{beginning.strip()}\n```",),
            references=(row.text("canonical_solution"),),
            task=Task(scorer="humaneval", data=data),
        )
