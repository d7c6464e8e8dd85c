"""Question files in the format of Spec-Bench and MT-Bench.

A row is `{"question_id": 1, "category": "qa", "turns": ["..."], "reference": ["..."]}`. Only
`turns` is required. Without any `question_id` in the file, prompts are named by their line number.
A reference that is itself a list (Spec-Bench's `rag` rows: short answers to one turn) becomes one
text with one answer per line.

Source: Xia et al. 2024, Spec-Bench (repository hemingkx/Spec-Bench); Zheng et al. 2023, MT-Bench
(repository lm-sys/FastChat).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.datasets.base import Prompt
from benchmarks.datasets.reader import DatasetError, Faults, describe
from benchmarks.datasets.rows import Row, parse_rows, read_rows

DEFAULT_CATEGORY = "default"


def read_questions(path: Path, faults: Faults) -> tuple[Prompt, ...]:
    """The prompts of a question file, in file order; bad rows are handled as `faults` says.

    Raises:
        DatasetError: At the first bad row unless `faults` skips it; always for a fault of the whole
            file, or if no row is usable.
    """
    return parse_questions(read_rows(path, faults), faults)


def parse_questions(
    rows: Sequence[Row], faults: Faults, parse: Callable[[Row], Prompt] | None = None
) -> tuple[Prompt, ...]:
    """The prompts of rows of questions; bad rows are handled as `faults` says.

    Either all rows have an id, or none: prompts that are named in two ways could meet.

    Args:
        rows: At least one.
        faults: What to do at a bad row.
        parse: One row to a prompt; None takes `question`.

    Raises:
        DatasetError: At the first bad row unless `faults` skips it; always if no row is usable.
    """
    line_with_id = next((row.line for row in rows if row.has("question_id")), None)

    def checked(row: Row) -> Prompt:
        prompt = (parse or question)(row)
        if line_with_id is not None and not row.has("question_id"):
            raise row.fault("question_id", f"an integer or a string (as in line {line_with_id})")
        return prompt

    return parse_rows(rows, checked, faults)


def question(row: Row) -> Prompt:
    """The prompt of one row.

    Raises:
        DatasetError: If a field is not as expected.
    """
    turns = _turns(row)
    return Prompt(
        prompt_id=row_id(row, "question_id") if row.has("question_id") else str(row.number),
        category=row.text("category") if row.has("category") else DEFAULT_CATEGORY,
        turns=turns,
        references=_references(row, len(turns)),
    )


def _turns(row: Row) -> tuple[str, ...]:
    try:
        return row.texts("turns")
    except DatasetError as fault:
        if "turns" not in row.fields and "choices" in row.fields:
            raise DatasetError(f"{fault}; is this a file of answers, not of questions?") from None
        raise


def row_id(row: Row, name: str) -> str:
    """An id, which is an integer or a text, as text.

    Raises:
        DatasetError: If the field is anything else, or missing.
    """
    value = row.fields.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value
    raise row.fault(name, "an integer or a string")


def _references(row: Row, num_turns: int) -> tuple[str, ...]:
    if not row.has("reference"):
        return ()
    value = row.fields["reference"]
    references = [value] if isinstance(value, str) else value
    if not isinstance(references, list) or len(references) > num_turns:
        raise row.fault(
            "reference",
            f"a list of at most one answer per turn ({num_turns}; "
            "several answers to one turn go into an inner list)",
        )
    return tuple(_reference(row, reference) for reference in references)


def _reference(row: Row, reference: object) -> str:
    answers: list[str] = []
    for answer in reference if isinstance(reference, list) else [reference]:
        if not isinstance(answer, str):
            raise row.fault("reference", "strings or lists of strings", describe(answer))
        answers.append(answer)
    return "\n".join(answers)
