"""Counting: the one place where tokens, steps and times of a request are added up.

Vanilla and method are counted by the same lines. Ids are clipped at the first EOS and at the budget
before they are recorded, so an output token is an entry of `output_ids`; the first one of each
answer comes from the prefill and belongs to no step.
"""

from __future__ import annotations

from typing import Any

from benchmarks.clock import CLOCK_PHASES
from benchmarks.quality import repetition_index
from benchmarks.records import Request
from benchmarks.steps import Steps
from primitives.types import ROOT_REASON


def num_output_tokens(request: Request) -> int:
    """Output tokens of all turns, the prefills' included."""
    return sum(len(turn.output_ids) for turn in request.turns)


def num_step_tokens(request: Request) -> int:
    """Output tokens of all turns that came from decoding steps."""
    return num_output_tokens(request) - len(request.turns)


def num_steps(request: Request) -> int:
    """Decoding steps of all turns: target forwards after the prefill."""
    return sum(len(turn.steps) for turn in request.turns if turn.steps is not None)


def count_request(request: Request) -> dict[str, Any]:
    """Everything that metrics add up, of one request without an error.

    Returns:
        `output_tokens`, `step_tokens`, `steps`, `wall_ns`, `decode_ns`, `repetition` (mean over
        turns), `max_regret_bound` (nats), `turns`, `cut_turns` (ended by the budget); for
        `vanilla` and `method` also what `_count_steps` and the phases give.
    """
    turns = request.turns
    counts: dict[str, Any] = {
        "output_tokens": num_output_tokens(request),
        "step_tokens": num_step_tokens(request),
        "steps": num_steps(request),
        "wall_ns": sum(turn.wall_ns for turn in turns),
        "decode_ns": sum(turn.wall_ns - turn.phase_ns.get("prefill", 0) for turn in turns),
        "repetition": sum(repetition_index(turn.output_ids) for turn in turns) / len(turns),
        "max_regret_bound": max_regret_bound(request),
        "turns": len(turns),
        "cut_turns": sum(turn.finish_reason == "length" for turn in turns),
    }
    for phase in CLOCK_PHASES:
        counts[f"phase:{phase}"] = sum(turn.phase_ns.get(phase, 0) for turn in turns)
    for turn in turns:
        for name, count in _count_steps(turn.steps or Steps()).items():
            counts[name] = counts.get(name, 0) + count
    return counts


def max_regret_bound(request: Request) -> float:
    """The largest bound on the regret of a token that some step of the answer recorded, in nats."""
    steps = [turn.steps for turn in request.turns if turn.steps is not None]
    return max((x for s in steps for bounds in s.regret_bounds for x in bounds), default=0.0)


def _count_steps(steps: Steps) -> dict[str, float]:
    """Sums over steps; `depth:d` counts kept nodes at depth d, `reason:r` accepted draft nodes."""
    counts: dict[str, float] = {
        "draft_nodes": sum(steps.num_draft_nodes),
        "draft_steps": sum(num > 0 for num in steps.num_draft_nodes),
        "candidate_tokens": sum(steps.candidate_tokens),
        "saved_tokens": sum(steps.candidate_tokens) - sum(steps.candidate_nodes),
        "accepted": sum(steps.num_accepted),
        "strict_tokens": sum(steps.num_strict),
        "regret": sum(x for regrets in steps.regrets for x in regrets),
        "gated": sum(x > 0 for bounds in steps.regret_bounds for x in bounds),
    }
    for reasons in steps.reasons:
        for depth, reason in enumerate(reasons):
            if depth > 0:
                counts[f"depth:{depth}"] = counts.get(f"depth:{depth}", 0) + 1
            if reason != ROOT_REASON:
                counts[f"reason:{reason}"] = counts.get(f"reason:{reason}", 0) + 1
    return counts
