"""TriviaQA: quiz questions, each with an answer and its aliases; without the evidence texts.

The turn is the question and a request for a short phrase. `test` is the hub's `validation`: the
answers of its test split are not public. A file is a list of objects with `question`, an id
(`question_id` or `qid`), and the answer as on the hub (`answer.value`, `answer.aliases`) or as
`gold_answer` and `aliases`. The first line of the reference is the answer, then its aliases.

Source: Joshi et al. 2017 (arXiv 1705.03551), repository mandarjoshi90/triviaqa (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt, Task
from benchmarks.datasets.file_loader import SHORT_ANSWER, short_answers
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.questions import row_id
from benchmarks.datasets.rows import Row


@DATASETS.register("triviaqa")
@dataclass(frozen=True, kw_only=True)
class TriviaQa(HubLoader):
    """One file, which is the test split; a folder with a file per split; or the hub."""

    splits = ("test", "train")
    files = ("triviaqa*.json", "triviaqa*.jsonl")
    address = "mandarjoshi/trivia_qa"
    pinned = "0f7faf33a3908546c6fd5b73a660e0f8ff173c2f"
    hub_config = "rc.nocontext"
    hub_splits: ClassVar[Mapping[str, str]] = {"test": "validation"}

    def prompt(self, row: Row) -> Prompt:
        """Question, answer and aliases."""
        id_field = "qid" if row.has("qid") else "question_id"
        return Prompt(
            prompt_id=row_id(row, id_field),
            category="triviaqa",
            turns=(f"{row.text('question')}\n\n{SHORT_ANSWER}",),
            references=short_answers(_answers(row)),
            task=Task(scorer="short_answer"),
        )


def _answers(row: Row) -> list[str]:
    if row.has("gold_answer"):
        answer, main = row, "gold_answer"
    else:
        fields = row.fields.get("answer")
        if not isinstance(fields, dict):
            raise row.fault("answer", "an object with value and aliases, or a field 'gold_answer'")
        answer, main = replace(row, fields=fields), "value"
    aliases = answer.texts("aliases") if answer.fields.get("aliases") else ()
    return [answer.text(main), *aliases]
