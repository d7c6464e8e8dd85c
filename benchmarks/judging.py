"""What is made of a run's rows when all have been measured: differences, scores, the summary."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.certificate import certify
from benchmarks.datasets.base import Dataset
from benchmarks.divergence import examine
from benchmarks.files import RunFolderError, read_json, write_json
from benchmarks.metrics import summarize
from benchmarks.progress import counting
from benchmarks.provenance import machine_kind
from benchmarks.records import SCHEMA_VERSION, Request
from benchmarks.row_log import read_requests
from benchmarks.run_files import ENVIRONMENT, EXAMINED, ROWS, SCORES, STATUS
from benchmarks.run_spec import RunSpec
from benchmarks.scoring.score_rows import read_scores, write_scores
from benchmarks.scoring.scores import score_run

logger = logging.getLogger(__name__)


def summarize_folder(path: Path) -> dict[str, Any]:
    """What `summary.json` holds: the facts of the run and metrics computed from its rows alone.

    `stopped` says why there are no more of them, if `status.json` does.

    Raises:
        RunFolderError: If a file is missing or damaged.
    """
    known = read_json(path / ENVIRONMENT)
    if known is None:
        raise RunFolderError(f"{path} is no run folder: it has no {ENVIRONMENT}")
    run_facts, sessions = known["run"], known["sessions"]
    requests = read_requests(path / ROWS)
    metrics = summarize(
        requests,
        is_greedy=run_facts["is_greedy"],
        is_lossless=run_facts["is_lossless"],
        scores=read_scores(path / SCORES),
    )
    certificate = certify(requests, run_facts, read_json(path / EXAMINED))
    stopped = (read_json(path / STATUS) or {}).get("stopped")
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run_facts,
        "is_one_machine": len(set(map(machine_kind, sessions))) == 1,
        "certificate": certificate.to_json(),
        **metrics,
        **({"stopped": stopped} if stopped else {}),
    }


def judge(spec: RunSpec, path: Path, requests: Sequence[Request]) -> None:
    """Looks at differences with the target model, and scores the answers."""
    if spec.is_lossless:
        write_json(path / EXAMINED, _examine(spec, requests))
    score(
        path,
        requests,
        spec.dataset,
        allow_code_execution=spec.allow_code_execution,
        progress=spec.progress,
    )


def _examine(spec: RunSpec, requests: Sequence[Request]) -> dict[str, Any]:
    """What `examine` finds, or why it could not look: all has been measured by now."""
    try:
        return examine(spec, requests)
    except Exception as error:
        if spec.on_error == "stop":
            raise
        logger.warning("differences could not be examined: %s: %s", type(error).__name__, error)
        return {"divergences": [], "error": f"{type(error).__name__}: {error}"}


def score(
    path: Path,
    requests: Sequence[Request],
    dataset: Dataset,
    *,
    allow_code_execution: bool,
    progress: bool,
) -> None:
    """Writes scores, unless that has been done with as much as is allowed now."""
    with counting("scoring answers", len(requests), progress) as advance:
        rows, note = score_run(
            requests, dataset, allow_code_execution=allow_code_execution, progress=advance
        )
    if note and any(prompt.task for prompt in dataset.prompts):
        logger.info("%s", note)
    if rows:
        write_scores(path / SCORES, rows)
