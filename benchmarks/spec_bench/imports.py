"""Answer files as a finished run: a folder that tables read like one of our own.

    results/imported/<model>/spec_bench/<method>/<run-id>/
        env.json        facts; under `imported` the files, their hashes and what is wrong with them
        summary.json    metrics, each with its definition
        status.json     done

There are no rows: the files hold neither token ids nor drafts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.datasets.reader import DatasetError
from benchmarks.files import explain_os_errors, write_json
from benchmarks.provenance import timestamp
from benchmarks.records import SCHEMA_VERSION
from benchmarks.run_files import ENVIRONMENT, STATUS, SUMMARY, run_path
from benchmarks.spec_bench.answers import QUESTION_FILE, AnswerFile, AnswerRow, read_answers
from benchmarks.spec_bench.findings import Finding
from benchmarks.spec_bench.imported_metrics import summarize_pairs
from benchmarks.spec_bench.lint import error_reasons, lint_answers
from benchmarks.spec_bench.names import RunNames, parse_names
from benchmarks.spec_bench.pairs import Pairs, pair_answers

FOLDER = "imported"
MOST_ERRORS = 3
"""What an error message tells of the faults of two files."""


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What the files do not tell.

    Attributes:
        results_dir: Where the run folder goes, below `imported`.
        device: Free text, e.g. `RTX 3090`; None if unknown.
        model: None takes it from the files; so for the next three.
        method: See `model`.
        dtype: See `model`.
        temperature: See `model`.
        max_new_tokens: Output budget per turn, in tokens, at least 1 and not below the longest
            measured answer; None takes vanilla's longest answer.
        is_lossless: Whether the method is said to keep the target's output.
        questions: The question file; its missing answers are found if it is given.
        dataset: Whose questions these are.
    """

    results_dir: Path = Path("results")
    device: str | None = None
    model: str | None = None
    method: str | None = None
    dtype: str | None = None
    temperature: float | None = None
    max_new_tokens: int | None = None
    is_lossless: bool = True
    questions: Path | None = None
    dataset: str = "spec_bench"


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """What an import wrote.

    Attributes:
        path: The run folder.
        summary: What `summary.json` holds.
        findings: What is wrong with the two files.
        num_excluded: Questions that are not measured.
    """

    path: Path
    summary: dict[str, Any]
    findings: list[Finding]
    num_excluded: int


def import_answers(answers: Path, baseline: Path, options: ImportOptions) -> ImportedRun:
    """Reads two answer files and writes a run folder; the same files give the same folder.

    Raises:
        DatasetError: If a file cannot be read, if the two are the same, if no question has a
            measured answer in both, or if one has more tokens than `max_new_tokens`.
        NameFault: If model, method, dtype or temperature are neither given nor in the files.
        RunFolderError: If the folder cannot be written.
    """
    method, vanilla = read_answers(answers), read_answers(baseline)
    if method.sha256 == vanilla.sha256:
        raise DatasetError(f"{answers} and --baseline {baseline} are the same file: give vanilla's")
    pairs = pair_answers(method, vanilla)
    findings = [
        *lint_answers(method, options.questions),
        *lint_answers(vanilla, options.questions),
        *pairs.findings,
    ]
    if not len(pairs.frame):
        raise DatasetError(_why_no_pair(method, vanilla, findings))
    _check_budget((method, vanilla), options.max_new_tokens)
    facts = _facts(method, vanilla, pairs, options)
    summary = {
        "schema_version": SCHEMA_VERSION,
        "run": facts,
        "is_one_machine": True,
        **summarize_pairs(pairs, is_greedy=facts["is_greedy"], is_lossless=options.is_lossless),
    }
    env = _environment(facts, method, vanilla, findings, pairs.num_excluded)
    path = run_path(
        options.results_dir / FOLDER,
        model=facts["model"],
        dataset=facts["dataset"],
        method=facts["method"],
        run_id=facts["run_id"],
    )
    _write(path, summary, env)
    return ImportedRun(
        path=path, summary=summary, findings=findings, num_excluded=pairs.num_excluded
    )


def _why_no_pair(method: AnswerFile, vanilla: AnswerFile, findings: list[Finding]) -> str:
    """One message, with what is wrong with the files if anything is."""
    questions = [str(finding) for finding in findings if finding.rule == QUESTION_FILE]
    if questions:
        return questions[0]
    errors = [str(finding) for finding in findings if finding.severity == "error"]
    message = f"{method.path}: no question is measured both here and in {vanilla.path}"
    return "\n  ".join([f"{message}:" if errors else message, *errors[:MOST_ERRORS]])


def _check_budget(files: Sequence[AnswerFile], max_new_tokens: int | None) -> None:
    """Refuses a budget that answers exceed."""
    for file in files:
        for row in _measured(file):
            if max_new_tokens is not None and max(row.new_tokens) > max_new_tokens:
                raise DatasetError(
                    f"{file.path}:{row.line}: an answer has {max(row.new_tokens)} new_tokens, more "
                    f"than --max-new-tokens {max_new_tokens}"
                )


def _measured(answers: AnswerFile) -> list[AnswerRow]:
    """The rows whose numbers mean something."""
    return [row for row in answers.rows if not error_reasons(row)]


def _facts(
    method: AnswerFile, vanilla: AnswerFile, pairs: Pairs, options: ImportOptions
) -> dict[str, Any]:
    """As `RunSpec.facts`, None where the files are silent."""
    names = parse_names(
        method.rows[0].model_id,
        vanilla.rows[0].model_id,
        model=options.model,
        method=options.method,
        dtype=options.dtype,
        temperature=options.temperature,
    )
    longest = max(tokens for row in _measured(vanilla) for tokens in row.new_tokens)
    return {
        "run_id": _run_id(method, vanilla, names, options),
        "model": names.model,
        "dataset": options.dataset,
        "split": "test",
        "method": names.method,
        "num_prompts": pairs.num_questions,
        "num_skipped_rows": 0,
        "repeats": 1,
        "is_greedy": names.temperature == 0,
        "is_lossless": options.is_lossless,
        "has_exact_phases": False,
        "state": None,
        "history": "own",
        "max_new_tokens": options.max_new_tokens or longest,
        "device": options.device,
        "dtype": names.dtype,
        "linear_kernels": None,
        "datastores": {},
        "temperature": names.temperature,
    }


def _run_id(
    method: AnswerFile, vanilla: AnswerFile, names: RunNames, options: ImportOptions
) -> str:
    """Twelve hexadecimal digits: equal for imports that give the same result."""
    value = {
        "files": [method.sha256, vanilla.sha256],
        "names": asdict(names),
        "device": options.device,
        "max_new_tokens": options.max_new_tokens,
        "is_lossless": options.is_lossless,
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _environment(
    facts: dict[str, Any],
    method: AnswerFile,
    vanilla: AnswerFile,
    findings: list[Finding],
    num_excluded: int,
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "run": facts,
        "imported": {
            "file": method.path.name,
            "sha256": method.sha256,
            "baseline": vanilla.path.name,
            "baseline_sha256": vanilla.sha256,
            "findings": [finding.to_json() for finding in findings],
            "num_excluded": num_excluded,
        },
        "code_version": None,
        "hashes": {},
        "sessions": [],
    }


def _write(path: Path, summary: dict[str, Any], env: dict[str, Any]) -> None:
    """The status last: until then the folder is no finished run."""
    with explain_os_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    write_json(path / ENVIRONMENT, env)
    write_json(path / SUMMARY, summary)
    write_json(path / STATUS, {"state": "done", "reason": None, "ended": timestamp()})
