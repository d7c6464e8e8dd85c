"""The only clock: how long an answer takes, and each phase of its decoding steps."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import Any

from methods.generation import PHASES, Phase, Probe, StepRecord

RECORD = "record"
"""The phase that holds what no other does: the loop's bookkeeping and the clock's own."""
CLOCK_PHASES: tuple[str, ...] = (*PHASES, RECORD)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The time of one answer, in ns.

    Attributes:
        wall_ns: From start to stop.
        phase_ns: Per phase; sums to `wall_ns`.
        step_ns: Per decoding step.
    """

    wall_ns: int
    phase_ns: dict[str, int]
    step_ns: list[int]


class PhaseClock(Probe):
    """Charges the time since the previous event to the phase that has just ended."""

    def __init__(self, synchronize: Callable[[], None] | None = None) -> None:
        """Starts the clock.

        Args:
            synchronize: Waits for the device at the end of each phase; None leaves the phases of
                an asynchronous device blurred, and its speed as it is.
        """
        self._synchronize = synchronize
        self._phase_ns = dict.fromkeys(CLOCK_PHASES, 0)
        self._step_ns: list[int] = []
        self._start = self._step_start = self._last = perf_counter_ns()

    def end_phase(self, phase: Phase) -> None:
        """Charges a phase."""
        if self._synchronize is not None:
            self._synchronize()
        now = perf_counter_ns()
        self._phase_ns[phase] += now - self._last
        self._last = now
        if phase == "prefill":
            self._step_start = now

    def end_step(self, step: StepRecord) -> None:
        """Notes the step's time."""
        now = perf_counter_ns()
        self._step_ns.append(now - self._step_start)
        self._phase_ns[RECORD] += now - self._last
        self._step_start = self._last = now

    def stop(self) -> Timing:
        """The time since the start; the clock is of no use afterwards."""
        now = perf_counter_ns()
        self._phase_ns[RECORD] += now - self._last
        return Timing(wall_ns=now - self._start, phase_ns=self._phase_ns, step_ns=self._step_ns)


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of a call, for benchmarks of single operations."""
    start = perf_counter()
    work()
    return perf_counter() - start


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collects now, and not again before the end of the block.

    The cyclic collector runs after so many allocations, wherever that falls: a pause of
    milliseconds would be charged to whichever arm and phase happens to be running.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def present_objects_frozen() -> Iterator[None]:
    """Hides all objects of now (libraries, model) from collections inside the block.

    Going through them takes a tenth of a second, and there is one collection per answer.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
