"""UltraChat: instructions of many kinds, and conversations with an assistant; without a task.

The hub's rows are conversations (`messages`): the user's messages are the turns, the assistant's
the references; prompts are named by `prompt_id`. A file may also be a list of objects with `data`,
the instruction, and `class`, its category; those have no references and are named by position,
from 1.

Source: Ding et al. 2023 (arXiv 2305.14233), repository thunlp/UltraChat (MIT); hub
HuggingFaceH4/ultrachat_200k, splits train_sft and test_sft (MIT).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.reader import describe
from benchmarks.datasets.rows import Row

ROLES = ("user", "assistant")


@DATASETS.register("ultrachat")
@dataclass(frozen=True, kw_only=True)
class UltraChat(HubLoader):
    """One file, which is the test split; a folder with a file per split; or the hub."""

    splits = ("test", "train")
    files = ("ultra_eval.json",)
    address = "HuggingFaceH4/ultrachat_200k"
    pinned = "8049631c405ae6576f93f445c6b8166f76f5505a"
    hub_splits: ClassVar[Mapping[str, str]] = {"test": "test_sft", "train": "train_sft"}

    def prompt(self, row: Row) -> Prompt:
        """An instruction or a conversation."""
        if row.has("data"):
            return Prompt(
                prompt_id=str(row.number),
                category=(row.optional_text("class") or self.name).strip(),
                turns=(row.text("data"),),
            )
        texts = _messages(row)
        return Prompt(
            prompt_id=row.text("prompt_id") if row.has("prompt_id") else str(row.number),
            category=self.name,
            turns=texts[::2],
            references=texts[1::2],
        )


def _messages(row: Row) -> tuple[str, ...]:
    """What is said: the words of user and assistant in turn."""
    messages = row.fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise row.fault("messages", "a list of messages, or a field 'data' with an instruction")
    return tuple(_text(row, index, message) for index, message in enumerate(messages))


def _text(row: Row, index: int, message: object) -> str:
    name, role = f"messages[{index}]", ROLES[index % 2]
    fields = message if isinstance(message, dict) else {}
    if fields.get("role") != role:
        raise row.fault(name, f"the role {role!r}", describe(fields.get("role")))
    return replace(row, fields={name: fields.get("content")}).text(name)
