"""What a datastore is made from: answers to the prompts of a dataset, or plain text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.answers import AnswerFile
from benchmarks.datasets.base import Dataset
from benchmarks.datasets.reader import Faults
from benchmarks.datasets.text import TextFiles
from benchmarks.documents import (
    Document,
    conversation,
    documents_of,
    reference_answers,
    text_documents,
)
from methods.datastores.folder import DatastoreError
from methods.hashing import file_sha256
from methods.targets.base import TextCodec

CHARS_PER_TOKEN = 3.5
"""Of English text and code, roughly: for estimates only."""


class Corpus(ABC):
    """A stream of documents that can be had again."""

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """All documents, always in the same order."""

    @abstractmethod
    def sources(self) -> tuple[dict[str, Any], ...]:
        """Names and content hashes of what the documents come from."""

    @abstractmethod
    def estimated_tokens(self) -> int:
        """About how many tokens there will be."""


@dataclass(kw_only=True)
class AnsweredPrompts(Corpus):
    """Prompts of a dataset with an answer behind each turn.

    Attributes:
        dataset: The prompts.
        codec: Text to ids.
        answers: The model's own answers; None for the dataset's.
        max_prompt_tokens: Longest prompt that can be answered; None if unlimited.
    """

    dataset: Dataset
    codec: TextCodec
    answers: AnswerFile | None = None
    max_prompt_tokens: int | None = None

    def documents(self) -> Iterator[Document]:
        """One per answer; prompts whose answers are missing have none."""
        for prompt in self.dataset.prompts:
            answers = self._answers(prompt)
            yield from documents_of(prompt, answers, self.codec)

    def sources(self) -> tuple[dict[str, Any], ...]:
        """The dataset."""
        dataset = self.dataset
        return (
            {
                "dataset": dataset.name,
                "split": dataset.split,
                "num_prompts": len(dataset.prompts),
                "content_hash": dataset.content_hash,
            },
        )

    def estimated_tokens(self) -> int:
        """Prompts, and references or full budgets."""
        budget = 0 if self.answers is None else self.answers.max_new_tokens
        chars = turns = 0
        for prompt in self.dataset.prompts:
            turns += len(prompt.turns)
            chars += sum(map(len, prompt.turns))
            chars += sum(map(len, prompt.references)) if self.answers is None else 0
        return int(chars / CHARS_PER_TOKEN) + turns * budget

    def generate(
        self,
        answer: Callable[..., Any],
        *,
        batch_size: int,
        progress: Callable[[int], None],
    ) -> None:
        """Has the model answer what it has not answered yet, turn by turn.

        Args:
            answer: `AnswerCall` of the model.
            batch_size: Prompts at a time.
            progress: Told how many answers each batch settled.
        """
        assert self.answers is not None
        for number in range(max(len(prompt.turns) for prompt in self.dataset.prompts)):
            prompts = [
                self.codec.encode(conversation(p, self._answers(p), self.codec, up_to=number))
                for p in self.dataset.prompts
                if number < len(p.turns)
            ]
            self._check_lengths(prompts)
            for settled in self.answers.complete(prompts, answer, batch_size=batch_size):
                progress(settled)

    def _check_lengths(self, prompts: list[list[int]]) -> None:
        longest = max(map(len, prompts))
        if self.max_prompt_tokens is not None and longest > self.max_prompt_tokens:
            raise DatastoreError(
                f"a prompt of {self.dataset.name} has {longest} tokens, the target model can "
                f"answer up to {self.max_prompt_tokens}: use another dataset or datastore.limit"
            )

    def _answers(self, prompt: Any) -> list[Any]:
        if self.answers is None:
            return list(reference_answers(prompt, self.codec))
        answers: list[Any] = []
        for number in range(len(prompt.turns)):
            ids = self.codec.encode(conversation(prompt, answers, self.codec, up_to=number))
            answers.append(self.answers.get(ids))
            if answers[-1] is None:
                break
        return answers


@dataclass(kw_only=True)
class Texts(Corpus):
    """Files of plain text.

    Attributes:
        loader: Where they are.
        codec: Text to ids.
        faults: What happens at a file that is no text.
    """

    loader: TextFiles
    codec: TextCodec
    faults: Faults

    def documents(self) -> Iterator[Document]:
        """One per piece."""
        return text_documents(self.loader.pieces(self.faults), self.codec)

    def sources(self) -> tuple[dict[str, Any], ...]:
        """The files."""
        root = self.loader.root
        return tuple(
            {"file": file.relative_to(root).as_posix(), "sha256": file_sha256(file)}
            for file in self.loader.files()
        )

    def estimated_tokens(self) -> int:
        """From the sizes of the files."""
        num_bytes = sum(file.stat().st_size for file in self.loader.files())
        return int(num_bytes / CHARS_PER_TOKEN)
