"""What happened where a method's output leaves vanilla's: rounding, or a fault.

The whole answer goes through `teacher_forcing`; the first difference goes under the `microscope`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from benchmarks.certificate import tier_of
from benchmarks.microscope import look_closely
from benchmarks.prompt_table import PromptTable, first_difference
from benchmarks.records import Request, RequestKey, Turn
from benchmarks.run_spec import RunSpec
from benchmarks.surprise import surprise
from benchmarks.teacher_forcing import Gaps, choices_by_width, teacher_force
from methods.generation import StopRule

NUM_SHOWN = 3
"""Divergences per arm whose step is decoded again and shown in full."""


def examine(spec: RunSpec, requests: Sequence[Request]) -> dict[str, Any]:
    """Has the target model look at the answers of a lossless method.

    Greedy: at every prompt where an arm's ids differ from vanilla's. Sampling: at all answers.

    Returns:
        What `examine_ids` finds; or `surprise` of both arms.
    """
    if spec.law.is_greedy:
        return examine_ids(spec, requests)
    rows = {request.key: request for request in requests if request.error is None}
    prompts = prompts_of(rows.values())
    return {
        "surprise": {
            arm: surprise(
                spec.target,
                spec.law,
                (
                    (prompts[turn.prompt_sha], turn.output_ids)
                    for request in rows.values()
                    if request.arm == arm
                    for turn in request.turns
                ),
            ).to_json()
            for arm in ("vanilla", "method")
        }
    }


def examine_ids(spec: RunSpec, requests: Sequence[Request]) -> dict[str, Any]:
    """Looks at every prompt where a greedy arm's ids differ from vanilla's.

    Returns:
        `divergences`, one object per prompt, repeat and arm; `width_control` for 16-bit models:
        what forwards of `node_budget + 1` rows change by themselves (None for others).
    """
    table = PromptTable.from_requests(requests)
    rows = {request.key: request for request in requests if request.error is None}
    examiner = _Examiner(spec, rows)
    divergences = []
    for arm in ("method", "control"):
        pairs = table.pairs("vanilla", arm)
        different = [key for key, (ids, other) in pairs.items() if ids != other]
        for number, (prompt_id, repeat) in enumerate(different):
            key: RequestKey = (prompt_id, repeat, arm)
            divergences.append(examiner.divergence(key, in_full=number < NUM_SHOWN))
    is_rounded = tier_of(spec.facts) == "rounding"
    return {
        "divergences": divergences,
        "width_control": examiner.width_control(table) if is_rounded else None,
    }


def prompts_of(requests: Iterable[Request]) -> dict[str, Sequence[int]]:
    """The prompt ids of all turns by their hash: not every row holds those that it followed."""
    return {
        turn.prompt_sha: turn.prompt_ids
        for request in requests
        for turn in request.turns
        if turn.prompt_ids is not None
    }


def dtype_of(spec: RunSpec) -> torch.dtype:
    """The dtype whose rounding is meant; the toy's is float64."""
    name = spec.model_hashes.get("dtype") or "float64"
    dtype = getattr(torch, str(name))
    assert isinstance(dtype, torch.dtype)
    return dtype


class _Examiner:
    """One run's target model, looking at its own answers."""

    def __init__(self, spec: RunSpec, rows: Mapping[RequestKey, Request]) -> None:
        self.spec, self.rows = spec, rows
        self.dtype = dtype_of(spec)
        self.prompts = prompts_of(rows.values())

    def width_control(self, table: PromptTable) -> dict[str, Any]:
        """What width changes, on the prompts of the control arm, or on all if there is none."""
        width = self.spec.method.node_budget + 1
        control = {prompt_id for prompt_id, _ in table.pairs("vanilla", "control")}
        num_tokens = num_flips = 0
        largest = 0.0
        for prompt_id in control or set(table.categories):
            for turn in self.rows[prompt_id, 0, "vanilla"].turns:
                ids, prompt_ids = turn.output_ids, self.prompts[turn.prompt_sha]
                choices = choices_by_width(self.spec.target, prompt_ids, ids, width)
                num_tokens += len(ids)
                num_flips += sum(a != b for a, b in zip(choices, ids, strict=True))
                if choices != list(ids):
                    forced = teacher_force(self.spec.target, prompt_ids, ids, self.dtype, choices)
                    largest = max(largest, *forced.in_spacings)
        return {
            "width": width,
            "num_tokens": num_tokens,
            "num_flips": num_flips,
            "largest_gap_spacings": _number(largest),
        }

    def divergence(self, key: RequestKey, *, in_full: bool) -> dict[str, Any]:
        """How an arm's answer leaves vanilla's, and whether each of its tokens may be rounding."""
        prompt_id, repeat, arm = key
        vanilla, other = self.rows[prompt_id, repeat, "vanilla"], self.rows[key]
        place = first_difference(
            [turn.output_ids for turn in vanilla.turns], [turn.output_ids for turn in other.turns]
        )
        turn, position = place["turn"], place["position"]
        # Later turns saw another history than vanilla's: each is judged by its own prompt.
        forced = [self._force(answer) for answer in other.turns[turn:]]
        gaps = [gap for one in forced for gap in one.in_spacings]
        found = {
            "prompt_id": prompt_id,
            "repeat": repeat,
            "arm": arm,
            "turn": turn,
            "position": position,
            "num_tokens": len(gaps),
            "num_outside": sum(one.num_outside for one in forced),
            "largest_gap_spacings": _number(max(gaps)),
            "num_ends_wrong": sum(not self._ends_right(answer) for answer in other.turns[turn:]),
        }
        if position < len(other.turns[turn].output_ids):
            found["gap"] = _number(forced[0].gaps[position])
            found["spacing"] = _number(forced[0].spacings[position])
        if in_full:
            answers = vanilla.turns[turn], other.turns[turn]
            prompt_ids = self.prompts[answers[1].prompt_sha]
            is_method = arm == "method"
            found |= look_closely(self.spec, prompt_ids, *answers, position, is_method=is_method)
        return found

    def _ends_right(self, turn: Turn) -> bool:
        """Whether an answer ends at its first EOS, or at the budget: not before, not behind."""
        eos_ids, budget = self.spec.target.eos_ids, self.spec.max_new_tokens
        stop = StopRule(max_new_tokens=budget, eos_ids=eos_ids)
        kept, reason = stop.clip(turn.output_ids, 0)
        return reason is not None and len(kept) == len(turn.output_ids)

    def _force(self, turn: Turn) -> Gaps:
        prompt_ids = self.prompts[turn.prompt_sha]
        return teacher_force(self.spec.target, prompt_ids, turn.output_ids, self.dtype)


def _number(value: float) -> float | None:
    """For JSON, which has no infinity and no NaN."""
    return value if math.isfinite(value) else None
