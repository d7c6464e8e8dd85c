"""SPEED-Bench: prompts for measuring speculative decoding, in parts of different lengths.

Its prompts may not be redistributed: this is a loader only, for a file that its owners' script has
made, or for the hub. `qualitative` has many categories, `throughput_*` prompts of about so many
tokens, in categories of predictability. There are no references, so no task. Prompts are named by
`question_id`, or by their position, from 1. The `sub_category` is not used.

Source: NVIDIA, hub nvidia/SPEED-Bench (NVIDIA Evaluation Dataset License).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.questions import parse_questions, question
from benchmarks.datasets.reader import DatasetError, Faults, shorten
from benchmarks.datasets.rows import Row

Config = Literal[
    "qualitative",
    "throughput_1k",
    "throughput_2k",
    "throughput_8k",
    "throughput_16k",
    "throughput_32k",
]


@DATASETS.register("speed_bench")
@dataclass(frozen=True, kw_only=True)
class SpeedBench(HubLoader):
    """A file or `CONFIG.jsonl` (`.json`, `.parquet`) of a folder, or the hub: the test split.

    Attributes:
        config: Which part.
    """

    address = "nvidia/SPEED-Bench"

    config: Config = "qualitative"

    @property
    def config_name(self) -> str:
        """The hub has the same names."""
        return self.config

    def patterns(self, split: str) -> tuple[str, ...]:
        """A file per part, or a folder per part."""
        endings = (".jsonl", ".json", ".parquet", "/*.jsonl", "/*.parquet")
        return tuple(f"{self.config}{ending}" for ending in endings)

    def prompt(self, row: Row) -> Prompt:
        """The question."""
        return question(row)

    def parse(self, rows: Sequence[Row], faults: Faults) -> tuple[Prompt, ...]:
        """The questions, if they are real ones.

        Raises:
            DatasetError: At a bad row unless `faults` skips it; if most prompts are the same text.
        """
        prompts = parse_questions(rows, faults, self.prompt)
        turn, count = Counter(prompt.turns[0] for prompt in prompts).most_common(1)[0]
        if count > 1 and 2 * count > len(prompts):
            raise DatasetError(
                f"{rows[0].path}: expected prompts, got {shorten(turn)!r} {count} times: "
                "placeholders are filled by the script of SPEED-Bench's owners"
            )
        return prompts
