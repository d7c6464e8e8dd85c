"""What a dataset is: prompts with a content hash; and what a loader of one has to offer."""

from __future__ import annotations

import hashlib
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.datasets.reader import DatasetError
from benchmarks.spec_bench.tasks import task_of


@dataclass(frozen=True, kw_only=True)
class Task:
    """How answers to a prompt are scored.

    Attributes:
        scorer: Registered name in `benchmarks.scoring`.
        data: What the scorer needs beside the prompt's references, as JSON values: the tests of a
            programming task. It is part of the content hash.
    """

    scorer: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One prompt of a dataset: the user's side of a conversation.

    Attributes:
        prompt_id: Unique within its dataset, as text.
        category: The kind of task, over which results are averaged.
        turns: What the user says, turn by turn; at least one, none blank.
        references: Good answers, `references[i]` to `turns[i]`; may be shorter than `turns`, and
            an empty string means that the turn has none. Several short answers to one turn stand
            on a line each.
        task: How answers are scored; None if nobody can say what is right.
    """

    prompt_id: str
    category: str
    turns: tuple[str, ...]
    references: tuple[str, ...] = ()
    task: Task | None = None

    def __post_init__(self) -> None:
        if not self.prompt_id.strip():
            raise ValueError("prompt_id must not be blank")
        if not self.turns or not all(turn.strip() for turn in self.turns):
            raise ValueError(
                f"turns must be one or more texts that are not blank, got {self.turns!r}"
            )
        if len(self.references) > len(self.turns):
            raise ValueError(
                f"references must be at most one per turn ({len(self.turns)}), "
                f"got {len(self.references)}"
            )


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The prompts of one split, in file order.

    Attributes:
        name: Registered name of the loader.
        split: Which part of the dataset this is, e.g. `test`.
        prompts: At least one, with distinct ids.
        content_hash: `hash_prompts(prompts)`: equal for equal content, wherever it was read from.
        source: Where the prompts came from, for the record.
        num_skipped: Bad rows that were left out.
        skipped: Why each of them was, one message per row.
    """

    name: str
    split: str
    prompts: tuple[Prompt, ...]
    content_hash: str
    source: str
    num_skipped: int = 0
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompts:
            raise ValueError(f"prompts of {self.name}/{self.split} must not be empty")
        if len({prompt.prompt_id for prompt in self.prompts}) < len(self.prompts):
            raise ValueError(f"prompt_ids of {self.name}/{self.split} must be distinct")

    @classmethod
    def from_prompts(
        cls,
        prompts: Sequence[Prompt],
        *,
        name: str,
        split: str,
        source: str,
        skipped: Sequence[object] = (),
    ) -> Dataset:
        """A dataset with its hash computed and its skipped rows counted."""
        return cls(
            name=name,
            split=split,
            prompts=tuple(prompts),
            content_hash=hash_prompts(prompts),
            source=source,
            num_skipped=len(skipped),
            skipped=tuple(str(fault) for fault in skipped),
        )


class DatasetLoader(ABC):
    """Base of all loaders: a frozen keyword-only dataclass whose fields are its configuration.

    Attributes:
        name: Registered name, set by the registry.
        splits: The splits that `load` knows, the usual one first.
    """

    name: ClassVar[str] = ""
    splits: ClassVar[tuple[str, ...]] = ("test",)

    @abstractmethod
    def load(self, split: str) -> Dataset:
        """Read one split.

        Raises:
            DatasetError: If there is no such split, or its file cannot be read.
        """

    def answers(self, model_name: str) -> Path | None:
        """A packaged file of a model's own answers, if there is one."""
        return None

    def check_split(self, split: str) -> None:
        """Refuse a split that `load` does not know.

        Raises:
            DatasetError: If the split is not one of `splits`.
        """
        if split not in self.splits:
            raise DatasetError(
                f"split of dataset={self.name} must be {' or '.join(self.splits)}, got {split!r}"
            )


def hash_prompts(prompts: Sequence[Prompt]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of all that files say about the prompts."""
    rows = [_content(prompt) for prompt in prompts]
    canonical = json.dumps(rows, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:16]


def _content(prompt: Prompt) -> dict[str, Any]:
    """What two equal prompts agree in. Which scorer is used is code; what it reads is content."""
    # The fields are named one by one, so that a new field of Prompt leaves old hashes as they are.
    content: dict[str, Any] = {
        "prompt_id": prompt.prompt_id,
        "category": prompt.category,
        "turns": prompt.turns,
        "references": prompt.references,
    }
    if prompt.task is not None and prompt.task.data:
        content["task"] = dict(prompt.task.data)
    return content


def limit_prompts(dataset: Dataset, limit: int | None, seed: int | None = None) -> Dataset:
    """A subset that covers the tasks evenly, and the categories of each task.

    Prompts are taken round-robin over the tasks (`task_of`: MT-Bench's eight categories are one),
    and within a task over its categories, in the order of their first appearance; so a smaller
    limit gives a subset of a larger one's prompts.

    Args:
        dataset: What to take from.
        limit: Number of prompts to keep, at least 1; None keeps all.
        seed: Order within a category: None takes the file's, a number shuffles.

    Returns:
        The kept prompts in file order with their own content hash; the dataset itself if the limit
        leaves nothing out.

    Raises:
        ValueError: If the limit is below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be ≥ 1 or null, got {limit}")
    if limit is None or limit >= len(dataset.prompts):
        return dataset
    tasks: dict[str, list[list[int]]] = {}
    for category, group in _categories(dataset.prompts, seed).items():
        tasks.setdefault(task_of(category), []).append(group)
    order = _round_robin([list(_round_robin(groups)) for groups in tasks.values()])
    kept = sorted(islice(order, limit))
    prompts = tuple(dataset.prompts[index] for index in kept)
    return replace(dataset, prompts=prompts, content_hash=hash_prompts(prompts))


def shuffle_prompts(dataset: Dataset, seed: int | None) -> Dataset:
    """The same prompts in another order; None leaves them as they are.

    The content hash stays: results of two orders are about the same prompts.
    """
    if seed is None:
        return dataset
    generator = random.Random(seed)
    keys = [generator.random() for _ in dataset.prompts]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return replace(dataset, prompts=tuple(dataset.prompts[index] for index in order))


def _categories(prompts: Sequence[Prompt], seed: int | None) -> dict[str, list[int]]:
    """Indices of the prompts by category."""
    groups: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        groups.setdefault(prompt.category, []).append(index)
    if seed is not None:
        # Sorting by random() keys, since Python promises the same numbers in every version only
        # for random(), not for shuffle().
        generator = random.Random(seed)
        keys = [generator.random() for _ in prompts]
        for group in groups.values():
            group.sort(key=keys.__getitem__)
    return groups


def _round_robin(groups: list[list[int]]) -> Iterator[int]:
    for rank in range(max(map(len, groups))):
        yield from (group[rank] for group in groups if rank < len(group))
