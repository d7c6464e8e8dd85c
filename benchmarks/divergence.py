"""What happened where a method's output leaves vanilla's: rounding, or a fault.

The whole answer goes through `teacher_forcing`. At the first difference the method's step is
decoded again, to show the tree and the logits that the method saw there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.certificate import tier_of
from benchmarks.prompt_table import PromptTable, first_difference
from benchmarks.records import Request, RequestKey, Turn
from benchmarks.run_spec import RunSpec
from benchmarks.steps import StepTree
from benchmarks.surprise import surprise
from benchmarks.teacher_forcing import Gaps, choices_by_width, logits_of_outputs, teacher_force
from benchmarks.traces import step_trees, token_texts
from methods.decoding import decode
from methods.generation import Probe, StepRecord, StopRule
from methods.targets.base import TargetModel, TreeOutput
from primitives.random_source import TorchRandom
from primitives.types import DraftTree

TOP_K = 5
NUM_SHOWN = 3
"""Divergences per arm whose step is decoded again and shown in full."""
CONTEXT_CHARS = 200
AFTER_TOKENS = 16


def examine(spec: RunSpec, requests: Sequence[Request]) -> dict[str, Any]:
    """Has the target model look at the answers of a lossless method.

    Greedy: at every prompt where an arm's ids differ from vanilla's. Sampling: at all answers.

    Returns:
        What `examine_ids` finds; or `surprise` of both arms.
    """
    if spec.law.is_greedy:
        return examine_ids(spec, requests)
    rows = {request.key: request for request in requests if request.error is None}
    prompt_ids = _Examiner(spec, rows).prompt_ids
    return {
        "surprise": {
            arm: surprise(
                spec.target,
                spec.law,
                (
                    (prompt_ids(turn), turn.output_ids)
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
        self.prompts = {
            turn.prompt_sha: turn.prompt_ids
            for request in rows.values()
            for turn in request.turns
            if turn.prompt_ids is not None
        }

    def width_control(self, table: PromptTable) -> dict[str, Any]:
        """What width changes, on the prompts of the control arm, or on all if there is none."""
        width = self.spec.method.node_budget + 1
        control = {prompt_id for prompt_id, _ in table.pairs("vanilla", "control")}
        num_tokens = num_flips = 0
        largest = 0.0
        for prompt_id in control or set(table.categories):
            for turn in self.rows[prompt_id, 0, "vanilla"].turns:
                ids, prompt_ids = turn.output_ids, self.prompt_ids(turn)
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
            found |= self._microscope(vanilla.turns[turn], other.turns[turn], position, key)
        return found

    def prompt_ids(self, turn: Turn) -> Sequence[int]:
        """The prompt that an answer followed."""
        prompt_ids = self.prompts[turn.prompt_sha]
        assert prompt_ids is not None
        return prompt_ids

    def _ends_right(self, turn: Turn) -> bool:
        """Whether an answer ends at its first EOS, or at the budget: not before, not behind."""
        eos_ids, budget = self.spec.target.eos_ids, self.spec.max_new_tokens
        stop = StopRule(max_new_tokens=budget, eos_ids=eos_ids)
        kept, reason = stop.clip(turn.output_ids, 0)
        return reason is not None and len(kept) == len(turn.output_ids)

    def _force(self, turn: Turn) -> Gaps:
        return teacher_force(self.spec.target, self.prompt_ids(turn), turn.output_ids, self.dtype)

    def _microscope(
        self, vanilla: Turn, other: Turn, position: int, key: RequestKey
    ) -> dict[str, Any]:
        """Both contexts, the best logits of one row, and the step in which it happened."""
        prompt_ids = self.prompt_ids(other)
        shared = other.output_ids[:position]
        row = list(logits_of_outputs(self.spec.target, prompt_ids, [*shared, 0], width=1))[-1]
        step, cache_len = _step_at(other, position)
        found = {
            "context": self.spec.codec.decode([*prompt_ids, *shared])[-CONTEXT_CHARS:],
            "vanilla_tokens": self._tokens(vanilla, position),
            "tokens": self._tokens(other, position),
            "top_logits": self._top(row),
            "step": step,
            "cache_len": cache_len,
        }
        if step is not None and key[2] == "method":
            found |= self._decode_again(prompt_ids, step, other, position)
        return found

    def _tokens(self, turn: Turn, position: int) -> list[str]:
        """How an answer goes on from a position."""
        ids = turn.output_ids[position : position + AFTER_TOKENS]
        before = (*self.prompt_ids(turn), *turn.output_ids[:position])[-1]
        return list(token_texts(self.spec.codec, ids, before))

    def _top(self, row: Float[Tensor, "v"]) -> list[dict[str, Any]]:
        values, ids = row.float().topk(min(TOP_K, len(row)))
        return [
            {"id": i, "text": self.spec.codec.decode([i]), "logit": value}
            for i, value in zip(ids.tolist(), values.tolist(), strict=True)
        ]

    def _decode_again(
        self, prompt_ids: Sequence[int], step: int, other: Turn, position: int
    ) -> dict[str, Any]:
        """The tree of a step, the node whose logits chose the token, and the best of them."""
        watched = _Watched(self.spec.target)
        probe = _StopAt(step)
        retriever = self.spec.method.retriever
        if retriever is not None:
            retriever.reset()
        budget, eos_ids = self.spec.max_new_tokens, self.spec.target.eos_ids
        with suppress(_Reached):
            decode(
                prompt_ids,
                target=watched,
                method=self.spec.method,
                stop=StopRule(max_new_tokens=budget, eos_ids=eos_ids),
                law=self.spec.law,
                random=TorchRandom.from_seed(0),
                probe=probe,
            )
        before = sum(r.num_output for r in probe.records[:step])
        node = _node_of(probe.records, other, step, position - before - 1)
        logits = watched.logits
        if (
            node is None
            or logits is None
            or int(logits[node].argmax()) != other.output_ids[position]
        ):
            # A retriever that learns from earlier prompts, or a device whose sums vary.
            return {"is_reproduced": False}
        record = probe.records[step]
        tree: StepTree = step_trees(self.spec.codec, probe.records, prompt_ids)[step]
        return {
            "is_reproduced": True,
            "tree": tree.to_json(),
            "node": node,
            "tree_path": [int(i) for i in record.tree.path_to(node)],
            "tree_top_logits": self._top(logits[node]),
        }


def _step_at(turn: Turn, position: int) -> tuple[int | None, int]:
    """The step that chose an output token, and the committed rows before it.

    None for the first token, which the prefill chose, and behind the end of the answer.
    """
    if position >= len(turn.output_ids):
        return None, turn.num_prompt_tokens + len(turn.output_ids)
    num_output = 1
    if turn.steps is not None and position > 0:
        for step, num in enumerate(turn.steps.num_output):
            if position < num_output + num:
                return step, turn.num_prompt_tokens + num_output - 1
            num_output += num
    return None, turn.num_prompt_tokens


def _node_of(records: Sequence[StepRecord], turn: Turn, step: int, offset: int) -> int | None:
    """The node whose logits chose a token of a step; None if the steps went another way."""
    if len(records) <= step or offset >= len(records[step].path):
        return None
    committed = [int(r.tree.token_ids[node]) for r in records[:step] for node in r.path]
    path = records[step].path[: offset + 1]
    committed += [int(records[step].tree.token_ids[node]) for node in path]
    is_same = committed == list(turn.output_ids[: len(committed)])
    return int(path[-1]) if is_same else None


def _number(value: float) -> float | None:
    """For JSON, which has no infinity and no NaN."""
    return value if math.isfinite(value) else None


class _Reached(Exception):
    """The step that is to be shown has been decoded."""


class _StopAt(Probe):
    """Keeps the steps up to one, and ends the decoding there."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.records: list[StepRecord] = []

    def end_step(self, step: StepRecord) -> None:
        self.records.append(step)
        if len(self.records) > self.step:
            raise _Reached


class _Watched:
    """A target model whose last tree logits can be read."""

    def __init__(self, target: TargetModel) -> None:
        self._target = target
        self.logits: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def forward_tree(self, tree: DraftTree) -> TreeOutput:
        output = self._target.forward_tree(tree)
        self.logits = output.logits
        return output
