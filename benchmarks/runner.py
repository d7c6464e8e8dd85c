"""The runner: a run from its folder to its summary, in one piece or in shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.datasets.base import Dataset
from benchmarks.files import RunFolderError
from benchmarks.judging import judge, score, summarize_folder
from benchmarks.provenance import code_version, describe_environment
from benchmarks.records import SCHEMA_VERSION
from benchmarks.results import read_run
from benchmarks.row_log import read_requests
from benchmarks.run_files import ROWS
from benchmarks.run_folder import RunFolder
from benchmarks.run_spec import RunSpec
from benchmarks.session import Session
from benchmarks.shards import Shard, gather, is_finished, missing_shards, note_shards
from benchmarks.tracking import open_tracker

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ASSEMBLY_S = 600.0
"""How long putting shards together, with the scoring of their answers, may take."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended.

    Attributes:
        path: The run folder.
        summary: What `summary.json` holds.
        failure: Why the run as a whole failed; None if it did not.
        was_finished: It had ended before, and nothing was measured.
        shards_left: Those that are not done, if this is one of several.
    """

    path: Path
    summary: Mapping[str, Any]
    failure: str | None = None
    was_finished: bool = False
    shards_left: Sequence[Shard] = ()

    @property
    def was_stopped(self) -> bool:
        """Whether it was stopped early, now or before."""
        return "stopped" in self.summary


def run(spec: RunSpec) -> RunResult:
    """Measures, or continues, or finds that all has been measured.

    A shard measures its part; the one that ends last puts the run together.

    Raises:
        RunFolderBusy: If another process is at this very run.
        RunFolderError: If the run folder cannot be written, or holds damaged files.
    """
    if spec.shard is None:
        return _run(spec, spec.path)
    if is_finished(spec.path):
        return _run(replace(spec, shard=None), spec.path)
    note_shards(spec.path, spec.shard.num_shards)
    result = _run(spec, spec.shard.path(spec.path))
    left = missing_shards(spec.path, spec.shard.num_shards)
    if left or result.failure:
        return replace(result, shards_left=left)
    return _put_together(spec, spec.shard.num_shards)


def _run(spec: RunSpec, path: Path) -> RunResult:
    """All prompts of a run or of a shard, in a folder."""
    with RunFolder(path) as folder:
        session = Session(spec, folder)
        if folder.is_done:
            return _finished(spec, folder, session.num_expected)
        if folder.is_stopped and spec.stop_early:
            return _finished(spec, folder, folder.num_expected)
        folder.start(
            config=spec.config,
            facts=_facts(spec),
            environment=describe_environment(spec.device, spec.load_seconds),
            num_expected=session.num_expected,
        )
        with open_tracker(
            spec.wandb,
            project=spec.wandb_project,
            config=spec.config,
            facts=spec.facts,
            directory=folder.path,
        ) as tracker:
            stop = session.measure(tracker)
            if stop is not None:
                folder.note_stop(stop.to_json())
            result = _conclude(spec, folder, None if stop is None else stop.reason)
            if tracker.is_active:
                tracker.log_summary(result.summary, _figures(folder.path))
        return result


def reopen(
    path: Path, dataset: Dataset, *, allow_code_execution: bool, progress: bool
) -> RunResult:
    """The result of a run that has ended, without its model.

    Raises:
        RunFolderBusy: If another process continues it after an early stop, or scores it again.
        RunFolderError: If the run folder cannot be written, or holds damaged files.
    """
    with RunFolder(path) as folder:
        return _reopen(
            folder,
            folder.num_expected,
            dataset,
            allow_code_execution=allow_code_execution,
            progress=progress,
        )


def _finished(spec: RunSpec, folder: RunFolder, num_expected: int) -> RunResult:
    return _reopen(
        folder,
        num_expected,
        spec.dataset,
        allow_code_execution=spec.allow_code_execution,
        progress=spec.progress,
    )


def _reopen(
    folder: RunFolder,
    num_expected: int,
    dataset: Dataset,
    *,
    allow_code_execution: bool,
    progress: bool,
) -> RunResult:
    """A run that has been measured; scored again if more is allowed now."""
    requests = read_requests(folder.path / ROWS)
    if len(requests) != num_expected:
        raise RunFolderError(
            f"{folder.path} is marked as ended, but holds {len(requests)} of {num_expected} rows: "
            "move it away to measure anew"
        )
    if allow_code_execution and any(prompt.task for prompt in dataset.prompts):
        # Which may not have been allowed before.
        with folder.locked(ASSEMBLY_S):
            score(folder.path, requests, dataset, allow_code_execution=True, progress=progress)
    # From the rows again: a table must not outlive the data that it comes from.
    summary = folder.renew(lambda: summarize_folder(folder.path))
    return RunResult(path=folder.path, summary=summary, was_finished=True)


def _conclude(spec: RunSpec, folder: RunFolder, stopped: str | None = None) -> RunResult:
    """What is made of the rows when all are there, or there will be no more of them."""
    judge(spec, folder.path, folder.log.requests)
    summary = summarize_folder(folder.path)
    failure = _failure(summary)
    folder.finish(summary, failure=failure, stopped=stopped, inputs=spec.inputs)
    return RunResult(path=folder.path, summary=summary, failure=failure)


def _put_together(spec: RunSpec, num_shards: int) -> RunResult:
    """The run of all shards, which are done.

    Shards that end at the same moment all come here: the first one does it, the others wait.

    Raises:
        RunFolderBusy: If another job holds the folder for longer than that takes.
        RunFolderError: If the shards may not be pooled.
    """
    whole = replace(spec, shard=None)
    with RunFolder(spec.path, ASSEMBLY_S) as folder:
        num_expected = Session(whole, folder).num_expected
        if folder.is_done:
            return _finished(whole, folder, num_expected)
        folder.begin_assembly(num_expected=num_expected)
        prompt_ids = [prompt.prompt_id for prompt in spec.dataset.prompts]
        found = gather(spec.path, num_shards, prompt_ids)
        folder.assemble(
            config=spec.config,
            facts=_facts(whole),
            sessions=found.sessions,
            requests=found.requests,
        )
        return _conclude(whole, folder)


def _facts(spec: RunSpec) -> dict[str, Any]:
    """The part of `env.json` that belongs to the run and not to a session."""
    hashes = {
        "dataset": spec.dataset.content_hash,
        "model": dict(spec.model_hashes),
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "run": spec.facts,
        "code_version": code_version(),
        "hashes": hashes,
    }


def _figures(path: Path) -> dict[str, Figure]:
    """The plots of a run that has just finished."""
    from benchmarks.report.plots import run_figures  # Slow to import, and rarely wanted.

    run = read_run(path)
    return run_figures(run) if run.summary["num_measured"] else {}


def _failure(summary: Mapping[str, Any]) -> str | None:
    """Why the run as a whole failed: nothing could be measured."""
    failures = summary["failures"]
    if summary["num_measured"] or not failures:
        return None
    return f"all prompts failed, the first one with {failures[0]['type']}: {failures[0]['message']}"
