"""Checks answer files for what makes their numbers wrong.

Each rule is a function from one row, or from all rows, to findings. The rules are known faults of
harnesses that wrote such files: failed questions kept with invented numbers, files appended to by
a rerun, tokens counted behind the end of an answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.datasets.questions import read_questions
from benchmarks.datasets.reader import Faults
from benchmarks.spec_bench.answers import AnswerFile, AnswerRow, read_answers
from benchmarks.spec_bench.findings import Finding, Severity

ERROR_TEXT = "ERROR"
"""What Spec-Bench's harness writes for the answer of a turn that raised."""

MIN_TURNS_AT_LIMIT = 3
MIN_LIMIT = 16
"""A largest answer of so many turns and at least so many tokens is taken for the budget."""

_END = re.compile(
    r"</s>|<\|(?:endoftext|end_of_text|im_end|eot_id|end)\|>|<end_of_turn>|<｜end▁of▁sentence｜>"
)
_Fault = tuple[str, Severity, str]
"""Rule, severity, message."""


def lint(path: Path, questions: Path | None = None) -> list[Finding]:
    """All findings of one file, in the order of its lines.

    Args:
        path: The answer file.
        questions: The question file that it answers, if known.

    Raises:
        DatasetError: If a file as a whole cannot be read.
    """
    return lint_answers(read_answers(path), questions)


def lint_answers(answers: AnswerFile, questions: Path | None = None) -> list[Finding]:
    """As `lint`, of a file that has been read.

    Raises:
        DatasetError: If the question file cannot be read.
    """
    path = answers.path
    findings = list(answers.findings)
    for row in answers.rows:
        findings += [_at(path, row.line, fault) for fault in _row_faults(row)]
    findings += [_at(path, line, fault) for line, fault in _file_faults(answers.rows)]
    if questions is not None:
        findings += [_at(path, line, fault) for line, fault in _unpaired(answers.rows, questions)]
    return sorted(findings, key=lambda finding: (finding.line or math.inf, finding.rule))


def error_reasons(row: AnswerRow) -> list[str]:
    """Why a row is no measurement: a failed question, no tokens, no time; empty if it is one."""
    reasons = []
    if ERROR_TEXT in row.turns:
        reasons.append(f"a turn is {ERROR_TEXT!r}")
    for tokens in row.new_tokens:
        if tokens == 0:
            reasons.append("new_tokens is 0")
    for seconds in row.wall_time:
        if not (math.isfinite(seconds) and seconds > 0):
            reasons.append(f"wall_time is {seconds}")
    return list(dict.fromkeys(reasons))


def _row_faults(row: AnswerRow) -> Iterator[_Fault]:
    reasons = error_reasons(row)
    if reasons:
        yield "error-row", "error", f"question {row.question_id} failed: {', '.join(reasons)}"
        return  # Its counters mean nothing.
    yield from _counter_faults(row)
    yield from _text_faults(row)


def _counter_faults(row: AnswerRow) -> Iterator[_Fault]:
    """`accept_lengths` against steps and tokens."""
    lengths, steps = row.accept_lengths, row.decoding_steps
    if lengths is None:
        return
    if steps is not None and len(lengths) != sum(steps) and not _has_prefill_entries(row):
        name = "idxs + 1" if row.has_idxs else "decoding_steps"
        message = f"{len(lengths)} accept_lengths, but {name} sum to {sum(steps)}"
        yield "steps-mismatch", "error", message
    excess = sum(lengths) - sum(row.new_tokens)
    if not excess:
        return
    message = f"accept_lengths sum to {sum(lengths)}, new_tokens to {sum(row.new_tokens)}"
    # The last step of a turn may have gone past its end, by no more than a step can accept.
    if 0 < excess <= len(row.turns) * (max(lengths) - 1):
        yield "overshoot", "warning", f"{message}: tokens behind the end of an answer were counted"
    else:
        yield "tokens-mismatch", "error", message


def _has_prefill_entries(row: AnswerRow) -> bool:
    """REST's way: beside `idxs`, one more length per turn, for the token of the prefill."""
    lengths, steps = row.accept_lengths or (), row.decoding_steps or ()
    return row.has_idxs and len(lengths) == sum(steps) + len(row.turns) and lengths[0] == 1


def _text_faults(row: AnswerRow) -> Iterator[_Fault]:
    for turn, text in enumerate(row.turns, start=1):
        found = _END.search(text)
        if found and text[found.end() :].strip():
            rest = text[found.end() :].strip()
            message = f"turn {turn} goes on behind {found.group()}: {rest[:40]!r}"
            yield "text-behind-end", "warning", message


def _file_faults(rows: Sequence[AnswerRow]) -> Iterator[tuple[int, _Fault]]:
    yield from _reruns(rows)
    yield from _copies(rows)
    yield from _at_limit(rows)
    models = Counter(row.model_id for row in rows)
    if len(models) > 1:
        first = next(row for row in rows if row.model_id != rows[0].model_id)
        names = ", ".join(map(repr, models))
        yield first.line, ("mixed-models", "warning", f"rows of several model_ids: {names}")


def _reruns(rows: Sequence[AnswerRow]) -> Iterator[tuple[int, _Fault]]:
    first: dict[str, AnswerRow] = {}
    for row in rows:
        known = first.setdefault(row.question_id, row)
        if known is not row:
            same = "the same" if known.answer_id == row.answer_id else "another"
            message = (
                f"question {row.question_id} was answered on line {known.line} already, with "
                f"{same} answer_id: was the file appended to by a rerun?"
            )
            yield row.line, ("duplicate-question", "error", message)


def _copies(rows: Sequence[AnswerRow]) -> Iterator[tuple[int, _Fault]]:
    """Times are floats with some ten digits: two that are equal were hardly both measured."""
    seen: set[str] = set()
    for before, row in pairwise(rows):
        seen.add(before.question_id)
        is_equal = before.wall_time == row.wall_time  # NaN, of a failed question, equals nothing.
        if is_equal and row.question_id not in seen:
            message = (
                f"wall_time {list(row.wall_time)} is that of line {before.line}: "
                "were the numbers of the previous question written for one that failed?"
            )
            yield row.line, ("copied-numbers", "warning", message)


def _at_limit(rows: Sequence[AnswerRow]) -> Iterator[tuple[int, _Fault]]:
    counts = Counter(tokens for row in rows for tokens in row.new_tokens)
    limit = max(counts, default=0)
    if limit >= MIN_LIMIT and counts[limit] >= MIN_TURNS_AT_LIMIT:
        line = next(row.line for row in rows if limit in row.new_tokens)
        message = f"{counts[limit]} turns have {limit} new_tokens, as if max_new_tokens cut them"
        yield line, ("at-limit", "note", message)


def _unpaired(rows: Sequence[AnswerRow], questions: Path) -> Iterator[tuple[int | None, _Fault]]:
    prompts = {prompt.prompt_id: prompt for prompt in read_questions(questions, Faults())}
    answered = {row.question_id for row in rows}
    missing = [prompt_id for prompt_id in prompts if prompt_id not in answered]
    if missing:
        message = (
            f"{len(missing)} of {len(prompts)} questions of {questions.name} have no answer: "
            f"{_some(missing)}"
        )
        yield None, ("missing-questions", "error", message)
    for row in rows:
        prompt = prompts.get(row.question_id)
        if prompt is None:
            message = f"question {row.question_id} is not in {questions.name}"
            yield row.line, ("unknown-question", "error", message)
        elif len(prompt.turns) != len(row.turns):
            message = f"{len(row.turns)} turns, the question has {len(prompt.turns)}"
            yield row.line, ("turns-mismatch", "error", message)


def _some(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _at(path: Path, line: int | None, fault: _Fault) -> Finding:
    rule, severity, message = fault
    return Finding(path=path, line=line, rule=rule, severity=severity, message=message)
