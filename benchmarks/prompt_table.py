"""Rows of a run -> one line of counts per prompt and arm, and who succeeded on what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import pandas as pd

from benchmarks.counts import count_request
from benchmarks.records import ARMS, Arm, Request
from benchmarks.sequences import shared_prefix

_TIMES = ["wall_ns", "decode_ns"]

Ids = tuple[tuple[int, ...], ...]
"""Output ids of all turns of one request."""


class Place(TypedDict):
    """A token of a request: its turn, and its position among the output tokens of that turn."""

    turn: int
    position: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmCounts:
    """The counts of one arm, one entry per prompt.

    Repeats are averaged; of wall times the median is taken where all repeats gave the same ids.
    Where they did not (sampling), a median would pair the time of one answer with the length of
    another.

    Attributes:
        frame: Index: prompt ids. Columns: see `count_request`.
    """

    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, column: str) -> np.ndarray:
        """One column as float64 [p]; zeros if nothing of the kind was ever counted."""
        if column not in self.frame:
            return np.zeros(len(self.frame))
        return self.frame[column].to_numpy(dtype=np.float64)

    @property
    def prompt_ids(self) -> list[str]:
        """Which prompts these are, in the order of the dataset."""
        return [str(prompt_id) for prompt_id in self.frame.index]

    def names(self, prefix: str) -> list[str]:
        """What follows `prefix:` in column names."""
        heads = [str(column).partition(":") for column in self.frame.columns]
        return [name for head, _, name in heads if head == prefix]

    def select(self, prompt_ids: Sequence[str]) -> ArmCounts:
        """Only these prompts, in this order."""
        return ArmCounts(frame=self.frame.loc[list(prompt_ids)])


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptTable:
    """All arms of a run, over the prompts on which both vanilla and method succeeded.

    Attributes:
        categories: Category of each measured prompt, in the order of the dataset.
        failed: Prompts with an error of vanilla or method in some repeat.
        arms: Counts per arm; `generate` and `control` cover some of the measured prompts.
        ids: Output ids by arm, prompt and repeat.
    """

    categories: dict[str, str]
    failed: tuple[str, ...]
    arms: dict[Arm, ArmCounts]
    ids: dict[Arm, dict[tuple[str, int], Ids]]

    @property
    def vanilla(self) -> ArmCounts:
        """Counts of the baseline."""
        return self.arms["vanilla"]

    @property
    def method(self) -> ArmCounts:
        """Counts of the method."""
        return self.arms["method"]

    def pairs(self, first: Arm, second: Arm) -> dict[tuple[str, int], tuple[Ids, Ids]]:
        """Output ids of two arms, for each prompt and repeat that both answered."""
        ids = self.ids[first]
        return {key: (ids[key], other) for key, other in self.ids[second].items() if key in ids}

    def identical(self, first: Arm, second: Arm) -> dict[str, bool]:
        """Per prompt that both arms answered: whether their ids are equal in all repeats."""
        same: dict[str, bool] = {}
        for (prompt_id, _), (ids, other) in self.pairs(first, second).items():
            same[prompt_id] = same.get(prompt_id, True) and ids == other
        return same

    def unstable(self) -> list[str]:
        """Prompts that some arm did not answer with the same ids in all repeats."""
        answers: dict[tuple[Arm, str], set[Ids]] = {}
        for arm, ids in self.ids.items():
            for (prompt_id, _), answer in ids.items():
                answers.setdefault((arm, prompt_id), set()).add(answer)
        return sorted({prompt_id for (_, prompt_id), ids in answers.items() if len(ids) > 1})

    @classmethod
    def from_requests(cls, requests: Sequence[Request]) -> PromptTable:
        """Counts and pairs the rows of a run, which may be incomplete."""
        pair = ("vanilla", "method")
        failed = [r.prompt_id for r in requests if r.error is not None and r.arm in pair]
        by_arm: dict[Arm, list[Request]] = {arm: [] for arm in ARMS}
        for request in requests:
            if request.error is None and request.prompt_id not in failed:
                by_arm[request.arm].append(request)
        both = _prompt_ids(by_arm["vanilla"]) & _prompt_ids(by_arm["method"])
        categories = {r.prompt_id: r.category for r in requests if r.prompt_id in both}
        return cls(
            categories=categories,
            failed=tuple(dict.fromkeys(failed)),
            arms={arm: _count(rows, list(categories)) for arm, rows in by_arm.items()},
            ids={
                arm: {(r.prompt_id, r.repeat): output_ids(r) for r in rows}
                for arm, rows in by_arm.items()
            },
        )


def output_ids(request: Request) -> Ids:
    """The ids of all turns."""
    return tuple(turn.output_ids for turn in request.turns)


def first_difference(first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]) -> Place:
    """Where two answers that differ do so first."""
    turn = next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
    return Place(turn=turn, position=shared_prefix(first[turn], second[turn]))


def _prompt_ids(requests: Sequence[Request]) -> set[str]:
    return {request.prompt_id for request in requests}


def _count(requests: Sequence[Request], prompt_ids: Sequence[str]) -> ArmCounts:
    """One line per prompt, in the order given; prompts without a row are left out."""
    answered = _prompt_ids(requests)
    order = [prompt_id for prompt_id in prompt_ids if prompt_id in answered]
    if not order:
        return ArmCounts(frame=pd.DataFrame())
    frame = pd.DataFrame(
        [{"prompt_id": r.prompt_id, "ids": output_ids(r), **count_request(r)} for r in requests]
    )
    numbers = [str(name) for name in frame if name not in ("prompt_id", "ids")]
    # A depth or a reason that a request never met is absent from its counts.
    frame[numbers] = frame[numbers].fillna(0)
    groups = frame.groupby("prompt_id", sort=False)
    counts = groups[numbers].mean()
    is_stable = groups["ids"].nunique() == 1
    counts.loc[is_stable, _TIMES] = groups[_TIMES].median().loc[is_stable]
    return ArmCounts(frame=counts.loc[order])
