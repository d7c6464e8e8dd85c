"""A run of ours as an answer file of Spec-Bench.

Such files keep `len(accept_lengths) == sum(decoding_steps)` and `sum(accept_lengths) ==
sum(new_tokens)`: every output token belongs to a step. Our steps begin after the prefill, whose
token belongs to none. So the prefill is written as a step of length 1 before the others, which
makes vanilla a list of ones, one per token:

    ours   prefill gives 1 token, then steps that give 3, 1 and 2
    file   accept_lengths [1, 3, 1, 2], decoding_steps [4], new_tokens [7]

The mean of `accept_lengths` is therefore not tau of the run: 7/4 instead of 6/3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from benchmarks.metrics import NS_PER_S
from benchmarks.records import Arm, Request, Turn
from benchmarks.results import StoredRun

# The alphabet and the length of the ids that the harness draws by chance.
_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ID_LENGTH = 22


@dataclass(frozen=True, kw_only=True)
class Export:
    """Rows of an answer file.

    Attributes:
        rows: One per answered question, in the order of the run.
        failed: Prompt ids that were left out, since the arm failed on them.
    """

    rows: tuple[dict[str, Any], ...]
    failed: tuple[str, ...]


def export_run(run: StoredRun, arm: Arm = "method", *, repeat: int = 0) -> Export:
    """One arm of a run as answer rows.

    Args:
        run: A finished run with its rows.
        arm: `method` or `vanilla`.
        repeat: Which repeat, from 0; an answer file has one answer per question.

    Raises:
        RunFolderError: If the run's rows are missing or damaged.
        ValueError: If the run has no answer of this arm and repeat, or the arm records no steps.
    """
    requests = [r for r in run.requests if r.arm == arm and r.repeat == repeat]
    if not requests:
        raise ValueError(f"{run.path} has no answers of arm {arm!r} in repeat {repeat}")
    model_id, tstamp = _model_id(run, arm), _tstamp(run)
    rows = tuple(
        _row(request, model_id, tstamp, answer_id=_answer_id(run.facts["run_id"], request))
        for request in requests
        if request.error is None
    )
    failed = tuple(request.prompt_id for request in requests if request.error is not None)
    return Export(rows=rows, failed=failed)


def accept_lengths(turn: Turn) -> list[int]:
    """Tokens of each step of one answer, the prefill being the first step.

    Raises:
        ValueError: If the arm records no steps.
    """
    if turn.steps is None:
        raise ValueError("the library's own generate records no steps: export method or vanilla")
    return [1, *turn.steps.num_output]


def _row(request: Request, model_id: str, tstamp: float, *, answer_id: str) -> dict[str, Any]:
    lengths = [accept_lengths(turn) for turn in request.turns]
    choice = {
        "index": 0,
        "turns": [turn.text for turn in request.turns],
        "decoding_steps": [len(of_turn) for of_turn in lengths],
        "new_tokens": [len(turn.output_ids) for turn in request.turns],
        "wall_time": [turn.wall_ns / NS_PER_S for turn in request.turns],
        "accept_lengths": [length for of_turn in lengths for length in of_turn],
    }
    return {
        "question_id": _question_id(request.prompt_id),
        "category": request.category,
        "answer_id": answer_id,
        "model_id": model_id,
        "choices": [choice],
        "tstamp": tstamp,
    }


def _question_id(prompt_id: str) -> int | str:
    """An integer if that loses nothing: `007` stays text."""
    is_integer = prompt_id.isascii() and prompt_id.isdigit() and str(int(prompt_id)) == prompt_id
    return int(prompt_id) if is_integer else prompt_id


def _model_id(run: StoredRun, arm: Arm) -> str:
    facts = run.facts
    method = facts["method"] if arm == "method" else arm
    temperature = 0.0 if facts["is_greedy"] else run.config.get("temperature", "unknown")
    words = [facts["model"], method, facts.get("dtype") or "unknown", "temp", temperature]
    return "-".join(map(str, words)).replace("/", "--")


def _tstamp(run: StoredRun) -> float:
    """When the run began, in seconds since 1970; 0 if it does not say."""
    sessions: Sequence[dict[str, Any]] = run.env.get("sessions") or []
    return datetime.fromisoformat(sessions[0]["time"]).timestamp() if sessions else 0.0


def _answer_id(run_id: str, request: Request) -> str:
    """The same answer always has the same id."""
    key = f"{run_id}\0{request.arm}\0{request.repeat}\0{request.prompt_id}"
    number = int.from_bytes(hashlib.sha256(key.encode()).digest(), "big")
    digits = []
    for _ in range(_ID_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)
