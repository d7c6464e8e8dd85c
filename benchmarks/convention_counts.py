"""What other people's definitions of acceptance are computed from: one line per step and answer.

A step drafts `nodes` nodes down to `depth`, keeps a path that ends at depth `kept` with `accepted`
draft nodes on it, and emits `emitted` tokens; `below` nodes were drafted right behind the path's
end. The first token of an answer comes from its prefill.
A relaxed verifier may keep a draft node in place of the pending one, at depth 0: it is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from benchmarks.prompt_table import ArmCounts, PromptTable
from benchmarks.records import Request, Turn
from benchmarks.steps import Steps

UNKNOWN = -1
_STEP_COLUMNS = ("request", "turn", "nodes", "depth", "accepted", "kept", "emitted", "below")
_ANSWER_COLUMNS = ("request", "turn", "tokens", "steps", "draft_ns", "forward_ns")


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    """The method's steps and answers, over the prompts that it and vanilla both answered.

    Repeats are pooled, as other answers to the same question.

    Attributes:
        steps: `request` and `turn` from 0, `nodes`, `depth`, `accepted`, `kept`, `emitted`,
            `below` (`UNKNOWN` for trees in rows from before it was recorded).
        answers: `request`, `turn`, `tokens` (the prefill's included), `steps`, `draft_ns` (propose
            and build), `forward_ns`.
        vanilla: Counts of the baseline per prompt.
        method: Counts of the method per prompt.
    """

    steps: pd.DataFrame
    answers: pd.DataFrame
    vanilla: ArmCounts
    method: ArmCounts

    @classmethod
    def from_requests(cls, requests: Sequence[Request]) -> Counts:
        """Counts the rows of a run, which may be incomplete."""
        table = PromptTable.from_requests(requests)
        rows = [
            request
            for request in requests
            if request.arm == "method"
            and request.error is None
            and request.prompt_id in table.categories
        ]
        turns = [
            (number, place, turn)
            for number, request in enumerate(rows)
            for place, turn in enumerate(request.turns)
        ]
        steps = [line for number, place, turn in turns for line in _steps(number, place, turn)]
        answers = [_answer(number, place, turn) for number, place, turn in turns]
        return cls(
            steps=pd.DataFrame(steps, columns=list(_STEP_COLUMNS), dtype="int64"),
            answers=pd.DataFrame(answers, columns=list(_ANSWER_COLUMNS), dtype="int64"),
            vanilla=table.vanilla,
            method=table.method,
        )

    @property
    def num_steps(self) -> int:
        """Target forwards after the prefills."""
        return len(self.steps)

    @property
    def num_answers(self) -> int:
        """Turns, each with one prefill."""
        return len(self.answers)

    @property
    def drafted(self) -> pd.DataFrame:
        """Steps with a draft node."""
        return self.steps[self.steps["nodes"] > 0]

    @property
    def first_turns(self) -> Counts:
        """Only the first turn of each request; the counts per prompt stay whole."""
        return Counts(
            steps=self.steps[self.steps["turn"] == 0],
            answers=self.answers[self.answers["turn"] == 0],
            vanilla=self.vanilla,
            method=self.method,
        )

    def sum(self, column: str) -> int:
        """Of a column of `steps`."""
        return int(self.steps[column].sum())

    def total(self, column: str) -> int:
        """Of a column of `answers`."""
        return int(self.answers[column].sum())


def was_rejected(steps: pd.DataFrame) -> pd.Series[bool]:
    """Whether a draft node behind the kept path was looked at and refused.

    A path that EOS or the budget cut has no token of the target behind it (`emitted` is `kept`, not
    one more): nothing below it was refused.
    """
    return (steps["below"] > 0) & (steps["emitted"] > steps["kept"])


def knows_refusals(steps: pd.DataFrame) -> bool:
    """Whether the rows say of every step what lay behind its path."""
    return bool((steps["below"] != UNKNOWN).all())


def _below(steps: Steps) -> list[int]:
    """Draft nodes right behind each path; of a chain they follow from its length."""
    if steps.num_below is not None:
        return list(steps.num_below)
    columns = zip(steps.num_draft_nodes, steps.draft_depth, steps.reasons, strict=True)
    return [
        (int(len(reasons) - 1 < depth) if nodes == depth else UNKNOWN)
        for nodes, depth, reasons in columns
    ]


def _steps(number: int, place: int, turn: Turn) -> list[tuple[int, ...]]:
    if turn.steps is None:
        return []
    columns = zip(
        turn.steps.num_draft_nodes,
        turn.steps.draft_depth,
        turn.steps.num_accepted,
        (len(reasons) - 1 for reasons in turn.steps.reasons),
        turn.steps.num_output,
        _below(turn.steps),
        strict=True,
    )
    return [(number, place, *counts) for counts in columns]


def _answer(number: int, place: int, turn: Turn) -> tuple[int, ...]:
    phase_ns = turn.phase_ns
    draft_ns = phase_ns.get("propose", 0) + phase_ns.get("build", 0)
    num_steps = 0 if turn.steps is None else len(turn.steps)
    forward_ns = phase_ns.get("forward", 0)
    return (number, place, len(turn.output_ids), num_steps, draft_ns, forward_ns)
