"""Reads answer files of Spec-Bench and its relatives; what differs between them is read through.

A row is `{"question_id", "category", "answer_id", "model_id", "choices": [{"turns": [str],
"decoding_steps": [int], "new_tokens": [int], "wall_time": [s], "accept_lengths": [int]}],
"tstamp"}` with one entry per turn, but `accept_lengths` flat over all turns. EAGLE and Medusa write
`idxs`, the last index of a loop that starts at 0, in place of `decoding_steps`, and no
`accept_lengths`; REST writes `accept_lengths:` with a stray colon.

Source: repositories hemingkx/Spec-Bench, SafeAILab/EAGLE, FasterDecoding/Medusa and
FasterDecoding/REST.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeGuard

from benchmarks.datasets.reader import DatasetError, Faults, describe, read_objects
from benchmarks.spec_bench.findings import Finding
from primitives.fields import did_you_mean

ROW_KEYS = ("question_id", "category", "answer_id", "model_id", "choices", "tstamp")
CHOICE_KEYS = (
    "index", "turns", "decoding_steps", "idxs", "new_tokens", "wall_time", "accept_lengths",
)  # fmt: skip
QUESTION_FILE = "question-file"
"""The rule that finds a file of questions in place of answers."""
MIN_LIKENESS = 0.85
"""Of a key to a known one to count as misspelt; `accept_lengths_tree` is a key of its own."""


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """One answered question; the first choice where there are several.

    Attributes:
        line: 1-based line in the file.
        question_id: As text; files hold integers or strings.
        category: "" if the row has none.
        answer_id: "" if the row has none.
        model_id: "" if the row has none.
        turns: The answers, at least one.
        new_tokens: Tokens of each turn.
        wall_time: Seconds of each turn; may be NaN.
        decoding_steps: Steps of each turn; None if the file has neither these nor `idxs`.
        accept_lengths: Tokens of each step, all turns in a row; None if the file has none.
        has_idxs: Whether the steps were read from `idxs`.
    """

    line: int
    question_id: str
    category: str
    answer_id: str
    model_id: str
    turns: tuple[str, ...]
    new_tokens: tuple[int, ...]
    wall_time: tuple[float, ...]
    decoding_steps: tuple[int, ...] | None
    accept_lengths: tuple[int, ...] | None
    has_idxs: bool = False


@dataclass(frozen=True, kw_only=True)
class AnswerFile:
    """An answer file as it could be read.

    Attributes:
        path: The file.
        sha256: Of its bytes, 64 hexadecimal digits.
        rows: Readable rows, in file order.
        findings: What was met on the way, unreadable rows among it.
    """

    path: Path
    sha256: str
    rows: tuple[AnswerRow, ...]
    findings: tuple[Finding, ...]


class _Unreadable(ValueError):
    """Why a row is no answer."""


def read_answers(path: Path) -> AnswerFile:
    """Reads a file; an unreadable row becomes a finding.

    A file that holds something else as a whole (questions, or no JSON lines) has one finding.

    Raises:
        DatasetError: For a fault of the whole file: missing, a folder, no rows, no text.
    """
    faults = Faults(on_error="skip")
    rows: list[AnswerRow] = []
    findings: list[Finding] = []
    are_questions: list[bool] = []
    for line, fields in read_objects(path, faults):
        are_questions.append("turns" in fields and "choices" not in fields)
        try:
            rows.append(_parse(line, fields))
        except _Unreadable as error:
            findings.append(_finding(path, line, "bad-row", "error", str(error)))
        findings += _odd_keys(path, line, fields)
    if are_questions and all(are_questions):
        message = "this is a question file, not answers: its rows have turns, but no choices"
        findings = [_finding(path, None, QUESTION_FILE, "error", message)]
    # Where no line is an object, the first fault is the cause, and the others follow from it.
    bad_lines = faults.found if are_questions else faults.found[:1]
    findings += [_bad_line(path, fault) for fault in bad_lines]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return AnswerFile(path=path, sha256=digest, rows=tuple(rows), findings=tuple(findings))


def _bad_line(path: Path, fault: DatasetError) -> Finding:
    """A line that is no JSON object."""
    number, _, message = str(fault).removeprefix(f"{path}:").partition(": ")
    rule = "cut-line" if "cut off" in message else "bad-line"
    return _finding(path, int(number), rule, "error", message)


def _odd_keys(path: Path, line: int, fields: dict[str, Any]) -> Iterator[Finding]:
    """Keys of the answer that nobody reads, and answers that nobody reads."""
    choices = fields.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return
    if len(choices) > 1:
        message = f"has {len(choices)} choices, of which only the first counts"
        yield _finding(path, line, "several-choices", "warning", message)
    for keys, known in ((fields, ROW_KEYS), (choices[0], CHOICE_KEYS)):
        for key in keys:
            near = get_close_matches(
                key, [name for name in known if name not in keys], 1, MIN_LIKENESS
            )
            if key not in known and near:
                message = f"unknown key {key!r}{did_you_mean(key, near)}"
                yield _finding(path, line, "misspelt-key", "error", message)


def _parse(line: int, fields: dict[str, Any]) -> AnswerRow:
    question_id = fields.get("question_id")
    if isinstance(question_id, bool) or not isinstance(question_id, int | str):
        raise _Unreadable(
            f"question_id must be an integer or a string, got {describe(question_id)}"
        )
    choice = _first_choice(fields)
    turns = _list(choice, "turns", str)
    new_tokens = _list(choice, "new_tokens", int)
    wall_time = _list(choice, "wall_time", float)
    steps, has_idxs = _steps(choice)
    for name, values in (
        ("new_tokens", new_tokens), ("wall_time", wall_time), ("decoding_steps", steps),
    ):  # fmt: skip
        if values is not None and len(values) != len(turns):
            raise _Unreadable(
                f"{name} must have one entry per turn ({len(turns)}), got {len(values)}"
            )
    return AnswerRow(
        line=line,
        question_id=str(question_id),
        **{name: _word(fields, name) for name in ("category", "answer_id", "model_id")},
        turns=turns,
        new_tokens=new_tokens,
        wall_time=tuple(map(float, wall_time)),
        decoding_steps=steps,
        accept_lengths=_accept_lengths(choice),
        has_idxs=has_idxs,
    )


def _first_choice(fields: dict[str, Any]) -> dict[str, Any]:
    choices = fields.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise _Unreadable(f"choices must be a list of objects, got {describe(choices)}")
    if not choices[0].get("turns"):
        found = describe(choices[0].get("turns"))
        raise _Unreadable(f"turns must be a list with one answer or more, got {found}")
    return choices[0]


def _word(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return "" if value is None else str(value)


def _steps(choice: dict[str, Any]) -> tuple[tuple[int, ...] | None, bool]:
    """Steps per turn, and whether `idxs` told them."""
    if "decoding_steps" in choice:
        return _list(choice, "decoding_steps", int), False
    if "idxs" in choice:
        return tuple(idx + 1 for idx in _list(choice, "idxs", int)), True
    return None, False


def _accept_lengths(choice: dict[str, Any]) -> tuple[int, ...] | None:
    """Under its name or a misspelt one; lists of turns are joined."""
    names = [key for key in choice if key.rstrip(": ") == "accept_lengths"]
    if not names or choice[names[0]] is None:
        return None
    value = choice[names[0]]
    if isinstance(value, list) and value and all(isinstance(turn, list) for turn in value):
        value = [length for turn in value for length in turn]
    return _list({names[0]: value}, names[0], int)


def _list(choice: dict[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    """A field that must be a list of one kind of value."""
    values = choice.get(name)
    if not isinstance(values, list):
        raise _Unreadable(f"{name} must be a list, got {describe(values)}")
    for place, value in enumerate(values, start=1):
        if not _is(value, kind):
            words = {str: "a string", int: "an integer ≥ 0", float: "a number"}
            raise _Unreadable(f"{name} must hold {words[kind]} as item {place}, got {value!r}")
    return tuple(values)


def _is(value: object, kind: type) -> TypeGuard[Any]:
    if kind is str:
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int) and value >= 0
    return isinstance(value, int | float)


def _finding(path: Path, line: int | None, rule: str, severity: Any, message: str) -> Finding:
    return Finding(path=path, line=line, rule=rule, severity=severity, message=message)
