"""One differing token in full: both contexts, the logits of its row, the method's step.

The step is decoded again, to show the tree and the logits that the method saw there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jaxtyping import Float
from torch import Tensor

from benchmarks.records import Turn
from benchmarks.run_spec import RunSpec
from benchmarks.steps import StepTree
from benchmarks.teacher_forcing import logits_of_outputs
from benchmarks.traces import step_trees, token_texts
from methods.decoding import decode
from methods.generation import Probe, StepRecord, StopRule
from methods.targets.base import TargetModel, TextCodec, TreeOutput
from primitives.random_source import TorchRandom
from primitives.types import DraftTree

TOP_K = 5
CONTEXT_CHARS = 200
AFTER_TOKENS = 16


def look_closely(
    spec: RunSpec,
    prompt_ids: Sequence[int],
    vanilla: Turn,
    other: Turn,
    position: int,
    *,
    is_method: bool,
) -> dict[str, Any]:
    """Both contexts, the best logits of one row, and the step in which it happened.

    Args:
        spec: The run.
        prompt_ids: The prompt that both answers follow.
        vanilla: Vanilla's answer.
        other: The answer that leaves it.
        position: The first output token that differs.
        is_method: Whether the method gave the other answer: its step is decoded again.
    """
    shared = other.output_ids[:position]
    row = list(logits_of_outputs(spec.target, prompt_ids, [*shared, 0], width=1))[-1]
    step, cache_len = _step_at(other, position)
    before = (*prompt_ids, *shared)[-1]
    found = {
        "context": spec.codec.decode([*prompt_ids, *shared])[-CONTEXT_CHARS:],
        "vanilla_tokens": _texts_from(spec.codec, vanilla, position, before),
        "tokens": _texts_from(spec.codec, other, position, before),
        "top_logits": _top(spec.codec, row),
        "step": step,
        "cache_len": cache_len,
    }
    if step is not None and is_method:
        found |= _decode_again(spec, prompt_ids, step, other, position)
    return found


def _texts_from(codec: TextCodec, turn: Turn, position: int, before: int) -> list[str]:
    """How an answer goes on from a position, behind the token `before`."""
    return list(token_texts(codec, turn.output_ids[position : position + AFTER_TOKENS], before))


def _top(codec: TextCodec, row: Float[Tensor, "v"]) -> list[dict[str, Any]]:
    values, ids = row.float().topk(min(TOP_K, len(row)))
    return [
        {"id": i, "text": codec.decode([i]), "logit": value}
        for i, value in zip(ids.tolist(), values.tolist(), strict=True)
    ]


def _decode_again(
    spec: RunSpec, prompt_ids: Sequence[int], step: int, other: Turn, position: int
) -> dict[str, Any]:
    """The tree of a step, the node whose logits chose the token, and the best of them."""
    watched = _Watched(spec.target)
    probe = _StopAt(step)
    retriever = spec.method.retriever
    if retriever is not None:
        retriever.reset()
    budget, eos_ids = spec.max_new_tokens, spec.target.eos_ids
    with suppress(_Reached):
        decode(
            prompt_ids,
            target=watched,
            method=spec.method,
            stop=StopRule(max_new_tokens=budget, eos_ids=eos_ids),
            law=spec.law,
            random=TorchRandom.from_seed(0),
            probe=probe,
        )
    before = sum(r.num_output for r in probe.records[:step])
    node = _node_of(probe.records, other, step, position - before - 1)
    logits = watched.logits
    if node is None or logits is None or int(logits[node].argmax()) != other.output_ids[position]:
        # A retriever that learns from earlier prompts, or a device whose sums vary.
        return {"is_reproduced": False}
    record = probe.records[step]
    tree: StepTree = step_trees(spec.codec, probe.records, prompt_ids)[step]
    return {
        "is_reproduced": True,
        "tree": tree.to_json(),
        "node": node,
        "tree_path": [int(i) for i in record.tree.path_to(node)],
        "tree_top_logits": _top(spec.codec, logits[node]),
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
