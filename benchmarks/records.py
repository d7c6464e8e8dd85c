"""What a run writes down: one `Request` per prompt, repeat and arm, as one line of JSON.

Raw per-step data is stored, in columns with one entry per decoding step; every metric is computed
from it later. Times are integers in nanoseconds, lengths are counted in tokens, texts are kept
beside the ids but never tokenised again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from benchmarks.steps import Steps

SCHEMA_VERSION = 2

Arm = Literal["vanilla", "method", "generate", "control"]
"""Who answered: the loop without a retriever, the method, the library's own `generate`, or vanilla
a second time, as a control of what differs without any cause."""

ARMS: tuple[Arm, ...] = get_args(Arm)

RequestKey = tuple[str, int, Arm]
"""Prompt id, repeat and arm: no run has two rows with the same one."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One answer.

    Attributes:
        num_prompt_tokens: Prompt length, in tokens.
        prompt_sha: `hash_ids` of the prompt ids.
        prompt_ids: The prompt ids themselves; None for first turns in repeats after the first, to
            save space.
        output_ids: The answer: at least one id, nothing behind the first EOS or the budget.
        text: The answer as text.
        finish_reason: `eos` or `length`; `other` of `generate`, where it ended before either.
        wall_ns: Wall time, prefill included.
        phase_ns: Wall time per phase, which sums to `wall_ns`; empty for `generate`.
        steps: The decoding steps; None for `generate`, whose steps cannot be seen.
        output_tokens: The text of each output token where it stands; None if it was not recorded.
    """

    num_prompt_tokens: int
    prompt_sha: str
    prompt_ids: tuple[int, ...] | None
    output_ids: tuple[int, ...]
    text: str
    finish_reason: str
    wall_ns: int
    phase_ns: Mapping[str, int]
    steps: Steps | None
    output_tokens: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.output_ids:
            raise ValueError("output_ids must hold at least one id")
        if self.steps is not None and sum(self.steps.num_output) != len(self.output_ids) - 1:
            raise ValueError(
                f"num_output must sum to all output tokens but the prefill's "
                f"({len(self.output_ids) - 1}), got {sum(self.steps.num_output)}"
            )

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        steps = None if self.steps is None else self.steps.to_json()
        value = vars(self) | {"phase_ns": dict(self.phase_ns), "steps": steps}
        if self.output_tokens is None:
            del value["output_tokens"]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Turn:
        """The inverse of `to_json`."""
        prompt_ids, steps = value["prompt_ids"], value["steps"]
        tokens = value.get("output_tokens")
        return cls(
            num_prompt_tokens=value["num_prompt_tokens"],
            prompt_sha=value["prompt_sha"],
            prompt_ids=None if prompt_ids is None else tuple(prompt_ids),
            output_ids=tuple(value["output_ids"]),
            text=value["text"],
            finish_reason=value["finish_reason"],
            wall_ns=value["wall_ns"],
            phase_ns=dict(value["phase_ns"]),
            steps=None if steps is None else Steps.from_json(steps),
            output_tokens=None if tokens is None else tuple(tokens),
        )


@dataclass(frozen=True, kw_only=True)
class RequestError:
    """Why a request has no numbers.

    Attributes:
        type: Class of the exception.
        message: Its text.
        place: File name and line where it was raised.
    """

    type: str
    message: str
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt, answered by one arm in one repeat; all turns or an error, never both.

    Attributes:
        prompt_id: As in the dataset.
        category: As in the dataset.
        arm: Who answered.
        repeat: From 0.
        order: Position among the arms of this prompt and repeat, from 0.
        session: Which process of an interrupted and continued run measured it, from 0.
        peak_memory_bytes: Peak memory since the session began, if known.
        turns: The answers; empty after an error.
        error: Why there are none.
    """

    prompt_id: str
    category: str
    arm: Arm
    repeat: int
    order: int
    session: int = 0
    peak_memory_bytes: int | None = None
    turns: tuple[Turn, ...] = ()
    error: RequestError | None = None

    def __post_init__(self) -> None:
        if bool(self.turns) == (self.error is not None):
            raise ValueError(f"request {self.key} must hold either turns or an error")

    @property
    def key(self) -> RequestKey:
        """What makes it unique in its run."""
        return self.prompt_id, self.repeat, self.arm

    def moved(self, num_sessions: int) -> Request:
        """The same row in a run with so many sessions before its own."""
        return replace(self, session=self.session + num_sessions)

    def to_line(self) -> bytes:
        """One line of JSON, line end included."""
        value = {"schema_version": SCHEMA_VERSION} | vars(self)
        value["turns"] = [turn.to_json() for turn in self.turns]
        value["error"] = None if self.error is None else vars(self.error)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # A lone surrogate cannot be encoded; its backslash form is also its JSON escape.
        return text.encode("utf-8", errors="backslashreplace") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Request:
        """The inverse of `to_line`.

        Raises:
            KeyError: If a field is missing.
            TypeError: If a field has another type.
            ValueError: If it is no JSON, or fields contradict each other.
        """
        value = json.loads(line)
        if value["schema_version"] != SCHEMA_VERSION:
            raise ValueError(
                f"schema_version must be {SCHEMA_VERSION}, got {value['schema_version']}"
            )
        error = value["error"]
        return cls(
            prompt_id=value["prompt_id"],
            category=value["category"],
            arm=value["arm"],
            repeat=value["repeat"],
            order=value["order"],
            session=value["session"],
            peak_memory_bytes=value["peak_memory_bytes"],
            turns=tuple(Turn.from_json(turn) for turn in value["turns"]),
            error=None if error is None else RequestError(**error),
        )


def hash_ids(token_ids: Sequence[int]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the ids, written in decimal with commas."""
    return hashlib.sha256(",".join(map(str, token_ids)).encode()).hexdigest()[:16]
