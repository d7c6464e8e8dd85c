"""Two answer files -> one table with a line per question that both answered, joined by its id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchmarks.spec_bench.answers import AnswerFile, AnswerRow
from benchmarks.spec_bench.findings import Finding
from benchmarks.spec_bench.lint import error_reasons

VANILLA, METHOD = "vanilla_", "method_"
"""What the columns of each file begin with."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """What a method and its baseline answered.

    Attributes:
        frame: Index: question ids in the method's order. Columns: `category`, and for each of
            the two `tokens`, `seconds`, `steps` and `lengths_sum`, `num_lengths` (NaN where the
            file has none), `turns` (texts), with its prefix.
        failures: Questions that one of the two failed on, as `summary.json` lists them.
        findings: Questions without a partner.
        num_questions: Distinct ids in both files together.
    """

    frame: pd.DataFrame
    failures: list[dict[str, Any]]
    findings: list[Finding]
    num_questions: int

    @property
    def num_failed(self) -> int:
        """Questions that one of the two failed on."""
        return len({failure["prompt_id"] for failure in self.failures})

    @property
    def num_excluded(self) -> int:
        """Questions that are not measured, for whatever reason."""
        return self.num_questions - len(self.frame)


def pair_answers(method: AnswerFile, vanilla: AnswerFile) -> Pairs:
    """Joins two files by question id.

    Of several answers to a question the last one that did not fail counts, as after a rerun.
    """
    good, partners = _by_question(method), _by_question(vanilla)
    failures = [*_failures("vanilla", vanilla), *_failures("method", method)]
    failed = {failure["prompt_id"] for failure in failures}
    findings = [
        *_without_partner(method, vanilla, set(partners) | failed),
        *_without_partner(vanilla, method, set(good) | failed),
        *_other_turns(method, good, partners),
    ]
    rows = [
        {"question_id": question_id, "category": row.category or "default"}
        | _columns(METHOD, row)
        | _columns(VANILLA, partners[question_id])
        for question_id, row in good.items()
        if question_id in partners and len(row.turns) == len(partners[question_id].turns)
    ]
    ids = {row.question_id for file in (method, vanilla) for row in file.rows}
    frame = pd.DataFrame(rows).set_index("question_id") if rows else pd.DataFrame()
    return Pairs(frame=frame, failures=failures, findings=findings, num_questions=len(ids))


def _by_question(answers: AnswerFile) -> dict[str, AnswerRow]:
    return {row.question_id: row for row in answers.rows if not error_reasons(row)}


def _failures(arm: str, answers: AnswerFile) -> Iterator[dict[str, Any]]:
    """Questions of which no answer is a measurement."""
    good = _by_question(answers)
    for row in {row.question_id: row for row in answers.rows}.values():
        if row.question_id not in good:
            yield {
                "prompt_id": row.question_id,
                "arm": arm,
                "repeat": 0,
                "type": "ErrorRow",
                "message": ", ".join(error_reasons(row)),
                "place": f"{answers.path.name}:{row.line}",
            }


def _without_partner(
    answers: AnswerFile, other: AnswerFile, partners: set[str]
) -> Iterator[Finding]:
    for row in answers.rows:
        if row.question_id not in partners:
            message = f"question {row.question_id} has no answer in {other.path.name}: left out"
            yield _finding(answers, row, "no-partner", message)


def _other_turns(
    answers: AnswerFile, good: dict[str, AnswerRow], partners: dict[str, AnswerRow]
) -> Iterator[Finding]:
    for question_id, row in good.items():
        partner = partners.get(question_id, row)
        if len(partner.turns) != len(row.turns):
            message = (
                f"question {question_id} has {len(row.turns)} turns, {len(partner.turns)} in the "
                "other file: left out"
            )
            yield _finding(answers, row, "turns-mismatch", message)


def _columns(prefix: str, row: AnswerRow) -> dict[str, Any]:
    columns = {
        "tokens": sum(row.new_tokens),
        "seconds": sum(row.wall_time),
        "steps": _sum(row.decoding_steps),
        "lengths_sum": _sum(row.accept_lengths or None),
        "num_lengths": len(row.accept_lengths) if row.accept_lengths else None,
        "turns": row.turns,
    }
    return {f"{prefix}{name}": value for name, value in columns.items()}


def _sum(values: Sequence[int] | None) -> int | None:
    return None if values is None else sum(values)


def _finding(answers: AnswerFile, row: AnswerRow, rule: str, message: str) -> Finding:
    return Finding(path=answers.path, line=row.line, rule=rule, severity="warning", message=message)
