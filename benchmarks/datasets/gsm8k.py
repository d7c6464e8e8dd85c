"""GSM8K: grade-school arithmetic problems with worked answers; `####` comes before the number.

The turn is the bare question. Prompts are named by their line.

Source: Cobbe et al. 2021 (arXiv 2110.14168); repository openai/grade-school-math (MIT).
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt, Task
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.rows import Row


@DATASETS.register("gsm8k")
@dataclass(frozen=True, kw_only=True)
class Gsm8k(HubLoader):
    """`train.jsonl` and `test.jsonl` of a folder, one file as test split, or the hub."""

    splits = ("test", "train")
    address = "openai/gsm8k"
    pinned = "e53f048856ff4f594e959d75785d2c2d37b678ee"
    hub_config = "main"

    def prompt(self, row: Row) -> Prompt:
        """Question and worked answer."""
        return Prompt(
            prompt_id=str(row.number),
            category="gsm8k",
            turns=(row.text("question"),),
            references=(row.text("answer"),),
            task=Task(scorer="gsm8k"),
        )
