"""One process's work on a run: every prompt through vanilla and method in turn, timed and recorded.

One process, one target object, batch 1. The arms take turns in a rotated order, so that a drift of
the machine's speed falls on both. Time covers prefill, retrieval, tree building, forward,
verification and cache work; tokenisation lies outside. What failed is recorded as failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from benchmarks.clock import present_objects_frozen
from benchmarks.datasets.base import Prompt, limit_prompts
from benchmarks.files import RunFolderError
from benchmarks.progress import RunProgress, open_progress
from benchmarks.records import Arm, Request, RequestError, RequestKey, Turn
from benchmarks.responder import Responder
from benchmarks.run_folder import RunFolder
from benchmarks.run_spec import RunSpec
from benchmarks.stopping import EarlyStopping, Stop
from benchmarks.tracking import Tracker

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


def arm_order(arms: Sequence[Arm], turn: int) -> tuple[Arm, ...]:
    """The arms, rotated by one for each turn."""
    shift = turn % len(arms)
    return (*arms[shift:], *arms[:shift])


class Session:
    """One process's work on a run."""

    def __init__(self, spec: RunSpec, folder: RunFolder) -> None:
        self.spec, self.folder = spec, folder
        self.responder = Responder(spec)
        self.stopping = EarlyStopping(spec, folder.path)

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

    def measure(self, tracker: Tracker) -> Stop | None:
        """Warms up, then measures every row that is not there yet; or says why it stopped early."""
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
                if stop := self._measure_pass(repeat, progress, tracker):
                    return stop
        return None

    def _warm_up(self) -> None:
        """Untimed answers; every pass begins with a reset of what the retriever learnt here."""
        for number in range(self.spec.warmup):
            for arm in self.arms(0):
                self._attempt(WARMUP_PROMPTS[number % len(WARMUP_PROMPTS)], arm, number)

    def _measure_pass(self, repeat: int, progress: RunProgress, tracker: Tracker) -> Stop | None:
        """One pass over the dataset; what an earlier session recorded is not measured again."""
        self._reset_retriever()
        rows = {request.key: request for request in self.folder.log.requests}
        is_complete = all(key in rows for i in self.spec.indices for key in self._keys(i, repeat))
        if self.spec.state == "warm" and not is_complete:
            self._warm_retriever(repeat)
        for number, index in enumerate(self.spec.indices, start=1):
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
            if (
                repeat == 0
                and not is_earlier
                and (stop := self.stopping.look(number, self.folder.log.requests))
            ):
                return stop
        return None

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
