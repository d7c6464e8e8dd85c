"""The runner: every prompt through vanilla and method in turn, each answer timed and recorded.

One process, one target object, batch 1. The arms take turns in a rotated order, so that a drift of
the machine's speed falls on both. Time covers prefill, retrieval, tree building, forward,
verification and cache work; tokenisation lies outside. What failed is recorded as failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.clock import present_objects_frozen
from benchmarks.datasets.base import Prompt, limit_prompts
from benchmarks.files import RunFolderError
from benchmarks.judging import judge, score, summarize_folder
from benchmarks.progress import RunProgress, open_progress
from benchmarks.provenance import code_version, describe_environment
from benchmarks.records import SCHEMA_VERSION, Arm, Request, RequestError, RequestKey, Turn
from benchmarks.responder import Responder
from benchmarks.results import read_run
from benchmarks.row_log import read_requests
from benchmarks.run_folder import RunFolder
from benchmarks.run_spec import RunSpec
from benchmarks.shards import gather, is_finished, missing_shards, note_shards
from benchmarks.tracking import Tracker, open_tracker

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WARMUP_PROMPTS = tuple(
    Prompt(prompt_id=f"warmup-{number}", category="warmup", turns=(text,))
    for number, text in enumerate(
        (
            "Describe how a lighthouse keeper spends a stormy night, hour by hour.",
            "Why does bread rise? Explain it first to a child, then to a chemist.",
            "List ten things to pack for a week in the mountains, and say why for each.",
        )
    )
)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended.

    Attributes:
        path: The run folder.
        summary: What `summary.json` holds.
        failure: Why the run as a whole failed; None if it did not.
        was_finished: It had finished before, and nothing was measured.
    """

    path: Path
    summary: Mapping[str, Any]
    failure: str | None = None
    was_finished: bool = False


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
        return result
    return _put_together(spec, spec.shard.num_shards)


def _run(spec: RunSpec, path: Path) -> RunResult:
    """All prompts of a run or of a shard, in a folder."""
    with RunFolder(path) as folder:
        session = _Session(spec, folder)
        if folder.is_done:
            return _finished(spec, folder, session.num_expected)
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
            session.measure(tracker)
            result = _conclude(spec, folder)
            if tracker.is_active:
                tracker.log_summary(result.summary, _figures(folder.path))
        return result


def _finished(spec: RunSpec, folder: RunFolder, num_expected: int) -> RunResult:
    """A run that has been measured; scored again if more is allowed now."""
    requests = read_requests(folder.path / "requests.jsonl")
    if len(requests) != num_expected:
        raise RunFolderError(
            f"{folder.path} is marked as done, but holds {len(requests)} of {num_expected} rows: "
            "move it away to measure anew"
        )
    if spec.allow_code_execution:  # Which may not have been allowed before.
        score(spec, folder.path, requests)
    # From the rows again: a table must not outlive the data that it comes from.
    summary = summarize_folder(folder.path)
    folder.renew(summary)
    return RunResult(path=folder.path, summary=summary, was_finished=True)


def _conclude(spec: RunSpec, folder: RunFolder) -> RunResult:
    """What is made of the rows when all are there."""
    judge(spec, folder.path, folder.log.requests)
    summary = summarize_folder(folder.path)
    failure = _failure(summary)
    folder.finish(summary, failure=failure)
    return RunResult(path=folder.path, summary=summary, failure=failure)


def _put_together(spec: RunSpec, num_shards: int) -> RunResult:
    """The run of all shards, which are done.

    Raises:
        RunFolderBusy: If another job does just that.
        RunFolderError: If the shards may not be pooled.
    """
    whole = replace(spec, shard=None)
    with RunFolder(spec.path) as folder:
        num_expected = _Session(whole, folder).num_expected
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


def arm_order(arms: Sequence[Arm], turn: int) -> tuple[Arm, ...]:
    """The arms, rotated by one for each turn."""
    shift = turn % len(arms)
    return (*arms[shift:], *arms[:shift])


class _Session:
    """One process's work on a run."""

    def __init__(self, spec: RunSpec, folder: RunFolder) -> None:
        self.spec, self.folder = spec, folder
        self.responder = Responder(spec)

    @cached_property
    def _generate_ids(self) -> frozenset[str]:
        """Prompts on which the library's own generate is timed."""
        is_possible = self.spec.generate is not None and self.spec.law.is_greedy
        return self._spread(self.spec.num_generate_prompts if is_possible else 0)

    @cached_property
    def _control_ids(self) -> frozenset[str]:
        """Prompts that vanilla answers twice."""
        return self._spread(self.spec.controlled)

    @cached_property
    def _traced_ids(self) -> frozenset[str]:
        """Prompts whose draft trees are recorded."""
        return self._spread(self.spec.num_traced_prompts)

    def _spread(self, num: int) -> frozenset[str]:
        """So many prompts, spread over the categories."""
        chosen = limit_prompts(self.spec.dataset, num).prompts if num else ()
        return frozenset(prompt.prompt_id for prompt in chosen)

    @property
    def num_expected(self) -> int:
        """Rows of a complete run."""
        return self.spec.repeats * sum(len(self.arms(index)) for index in self.spec.indices)

    def arms(self, index: int) -> tuple[Arm, ...]:
        """Who answers the prompt with this index."""
        prompt_id = self.spec.dataset.prompts[index].prompt_id
        arms: list[Arm] = ["vanilla", "method"]
        if prompt_id in self._generate_ids:
            arms.append("generate")
        if prompt_id in self._control_ids:
            arms.append("control")
        return tuple(arms)

    def measure(self, tracker: Tracker) -> None:
        """Warms up, then measures every row that is not there yet."""
        spec = self.spec
        label = f"{spec.method.name} on {spec.dataset.name}"
        num_total = spec.repeats * len(spec.indices)
        is_complete = len(self.folder.log.requests) == self.num_expected
        with (
            present_objects_frozen(),
            open_progress(num_total, label=label, is_shown=spec.progress) as progress,
        ):
            if not is_complete:
                spec.reset_peak_memory()
                self._warm_up()
            for repeat in range(spec.repeats):
                self._measure_pass(repeat, progress, tracker)

    def _warm_up(self) -> None:
        """Untimed answers; every pass begins with a reset of what the retriever learnt here."""
        for number in range(self.spec.warmup):
            for arm in self.arms(0):
                self._attempt(WARMUP_PROMPTS[number % len(WARMUP_PROMPTS)], arm, number)

    def _measure_pass(self, repeat: int, progress: RunProgress, tracker: Tracker) -> None:
        """One pass over the dataset; what an earlier session recorded is not measured again."""
        self._reset_retriever()
        rows = {request.key: request for request in self.folder.log.requests}
        is_complete = all(key in rows for i in self.spec.indices for key in self._keys(i, repeat))
        if self.spec.state == "warm" and not is_complete:
            self._warm_retriever(repeat)
        for index in self.spec.indices:
            keys = self._keys(index, repeat)
            if self.spec.state == "reset":
                self._reset_retriever()
            for order, key in enumerate(keys):
                if key not in rows:
                    rows[key] = self._measure(index, key, order)
                elif not is_complete:
                    self._relive(index, key)
            is_earlier = all(rows[key].session < self.folder.session for key in keys)
            progress.add([rows[key] for key in keys], is_earlier=is_earlier)
            tracker.log_prompt([rows[key] for key in keys])

    def _warm_retriever(self, repeat: int) -> None:
        """Untimed answers that the retriever may learn from."""
        for prompt in self.spec.warm_prompts:
            error = self._attempt(prompt, "method", repeat).error
            if error is not None:
                raise RunFolderError(
                    f"state=warm could not answer prompt {prompt.prompt_id!r} of the warm-up "
                    f"corpus: {error.type}: {error.message}"
                )

    def _keys(self, index: int, repeat: int) -> list[RequestKey]:
        """The rows of a prompt and repeat, in the order in which they are measured."""
        prompt_id = self.spec.dataset.prompts[index].prompt_id
        return [(prompt_id, repeat, arm) for arm in arm_order(self.arms(index), index + repeat)]

    def _measure(self, index: int, key: RequestKey, order: int) -> Request:
        request = self._attempt(self.spec.dataset.prompts[index], key[2], key[1], order)
        self.folder.log.append(request)
        return request

    def _relive(self, index: int, key: RequestKey) -> None:
        """Decodes a recorded prompt again, for what the retriever remembers of it.

        A run that was interrupted lost the state that its retriever carried from prompt to prompt.
        """
        retriever = self.spec.method.retriever
        remembers = retriever is not None and retriever.is_cross_request
        if key[2] == "method" and self.spec.state != "reset" and remembers:
            self._attempt(self.spec.dataset.prompts[index], "method", key[1])

    def _reset_retriever(self) -> None:
        if self.spec.method.retriever is not None:
            self.spec.method.retriever.reset()

    def _attempt(self, prompt: Prompt, arm: Arm, repeat: int, order: int = 0) -> Request:
        """A prompt's answers, or the error that prevented them."""
        turns: tuple[Turn, ...] = ()
        failure = None
        is_traced = arm == "method" and repeat == 0 and prompt.prompt_id in self._traced_ids
        try:
            turns = self.responder.respond(prompt, arm, repeat, is_traced=is_traced)
        except Exception as error:
            if self.spec.on_error == "stop":
                raise
            failure = RequestError(
                type=type(error).__name__, message=str(error), place=_place(error)
            )
        return Request(
            prompt_id=prompt.prompt_id,
            category=prompt.category,
            arm=arm,
            repeat=repeat,
            order=order,
            session=self.folder.session,
            peak_memory_bytes=self.spec.peak_memory(),
            turns=turns,
            error=failure,
        )


def _place(error: BaseException) -> str:
    """`file.py:line` where the error was raised, for whoever wrote that file."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
