"""The target model's own greedy answers to prompts, kept in a file, so that a build can be resumed.

    {"format": 1, "model": {...}, "max_new_tokens": 128}
    {"prompt_sha": "...", "output_ids": [...]}
    ...

An answer is found by the hash of its prompt ids, so that the file serves every selection and order
of prompts. A batch is appended in one write; a torn last line is cut off when the file is opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock

from benchmarks.records import hash_ids
from methods.build import build_vanilla
from methods.datastores.folder import DatastoreError, explain_os_errors
from methods.decoding import decode
from methods.files import wait_for, write_atomically
from methods.generation import StopRule
from methods.sampling import SamplingLaw
from methods.targets.base import GeneratingModel, TargetModel
from primitives.random_source import TorchRandom

FORMAT = 1

AnswerCall = Callable[[Sequence[Sequence[int]], int], Sequence[Sequence[int]]]
"""Several prompts and an output budget -> the greedy answer to each."""


class AnswerFile:
    """Answers of one model with one output budget.

    Args:
        path: The file; made with its first line if there is none.
        model: What identifies the model.
        max_new_tokens: Output budget of all answers, in tokens.
        first: A file to begin with if there is none, and it is of the same model and budget.

    Raises:
        DatastoreError: If the file belongs to another model or budget, or is damaged.
    """

    def __init__(
        self,
        path: Path,
        *,
        model: Mapping[str, Any],
        max_new_tokens: int,
        first: Path | None = None,
    ) -> None:
        self.path = path
        self.max_new_tokens = max_new_tokens
        self._head = {"format": FORMAT, "model": dict(model), "max_new_tokens": max_new_tokens}
        self._answers: dict[str, tuple[int, ...]] = {}
        if not path.exists():
            head = _line(self._head)
            content = b"" if first is None else first.read_bytes()
            self._write(content if content.startswith(head) else head)
        self._read()

    def get(self, prompt_ids: Sequence[int]) -> tuple[int, ...] | None:
        """The answer to a prompt, if it is known."""
        return self._answers.get(hash_ids(prompt_ids))

    def complete(
        self, prompts: Sequence[Sequence[int]], answer: AnswerCall, *, batch_size: int
    ) -> Iterator[int]:
        """Asks for the answers that are missing; yields how many prompts each batch settled.

        Prompts of similar length share a batch, since the longest one sets its cost.
        """
        known = sum(self.get(ids) is not None for ids in prompts)
        if known:
            yield known
        missing = {hash_ids(ids): ids for ids in prompts if self.get(ids) is None}
        by_length = iter(sorted(missing.items(), key=lambda item: (len(item[1]), item[0])))
        while batch := list(islice(by_length, batch_size)):
            outputs = answer([ids for _, ids in batch], self.max_new_tokens)
            self._append([(sha, tuple(ids)) for (sha, _), ids in zip(batch, outputs, strict=True)])
            yield len(batch)

    def _append(self, rows: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        content = b"".join(_line({"prompt_sha": sha, "output_ids": ids}) for sha, ids in rows)
        with explain_os_errors(self.path), self.path.open("ab") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        self._answers.update(rows)

    def _write(self, content: bytes) -> None:
        """The whole file, or nothing of it."""
        with explain_os_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, content)

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._write(whole)
        try:
            head, *rows = [json.loads(line) for line in whole.splitlines()]
            self._answers = {row["prompt_sha"]: tuple(row["output_ids"]) for row in rows}
        except (ValueError, KeyError, TypeError) as error:
            raise DatastoreError(
                f"{self.path} is damaged ({error}): remove it to have the answers generated again"
            ) from error
        if head != self._head:
            raise DatastoreError(
                f"{self.path} holds answers of {head}, but those of {self._head} are needed: "
                "move it away"
            )


@contextmanager
def opened_answers(
    path: Path, *, model: Mapping[str, Any], max_new_tokens: int, first: Path | None = None
) -> Iterator[AnswerFile]:
    """An answer file that one process at a time reads and continues.

    A second one waits, and finds the answers of the first. The arguments are those of `AnswerFile`.

    Raises:
        DatastoreError: If the file cannot be written, belongs to another model or budget, or is
            damaged.
    """
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    with explain_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        held = wait_for(lock, f"generates answers into {path}")
    with held:
        yield AnswerFile(path, model=model, max_new_tokens=max_new_tokens, first=first)


def answer_call(target: TargetModel) -> AnswerCall:
    """Several greedy answers at a time where the target model can, else one after the other."""
    if isinstance(target, GeneratingModel):
        return target.generate_batch
    law = SamplingLaw()
    vanilla = build_vanilla(law)

    def answer(prompts: Any, max_new_tokens: int) -> list[tuple[int, ...]]:
        stop = StopRule(max_new_tokens=max_new_tokens, eos_ids=target.eos_ids)
        random = TorchRandom.from_seed(0)
        return [
            decode(ids, target=target, method=vanilla, stop=stop, law=law, random=random).output_ids
            for ids in prompts
        ]

    return answer


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"
