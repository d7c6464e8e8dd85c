"""Progress of a run on stderr: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmarks.counts import num_output_tokens, num_step_tokens, num_steps
from benchmarks.records import Request

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BEFORE_ESTIMATE = 2.0
"""How long a build is watched before its end is foretold."""


class RunProgress:
    """Counts prompts, and the method's speed and acceptance so far; shows nothing.

    Attributes:
        num_total: Prompts times repeats.
        num_done: How many of them are complete.
        num_failed: How many of these have an error in some arm.
        num_earlier: How many of these an earlier session completed.
    """

    def __init__(self, num_total: int) -> None:
        self.num_total, self.num_done, self.num_failed = num_total, 0, 0
        self.num_earlier = 0
        self._tokens = self._wall_ns = self._step_tokens = self._steps = 0

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, requests: Sequence[Request], *, is_earlier: bool = False) -> None:
        """A prompt is complete, with these rows."""
        self.num_done += 1
        self.num_earlier += is_earlier
        self.num_failed += any(request.error is not None for request in requests)
        for request in requests:
            if request.arm == "method":
                self._tokens += num_output_tokens(request)
                self._wall_ns += sum(turn.wall_ns for turn in request.turns)
                self._step_tokens += num_step_tokens(request)
                self._steps += num_steps(request)
        if not is_earlier:
            self.show()

    @property
    def headline(self) -> str:
        """`31.2 tok/s  tau 1.84`, once there is something to say."""
        parts = []
        if self._wall_ns:
            parts.append(f"{self._tokens / self._wall_ns * 1e9:.1f} tok/s")
        if self._steps:
            parts.append(f"tau {self._step_tokens / self._steps:.2f}")
        if self.num_failed:
            parts.append(f"{self.num_failed} failed")
        return "  ".join(parts)

    def show(self) -> None:
        """Shows the present state."""

    def close(self) -> None:
        """Ends the display."""


class _Bar(RunProgress):
    def __init__(self, num_total: int, label: str, console: Console) -> None:
        super().__init__(num_total)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[headline]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            # A refreshing thread would take the interpreter from the loop that is being timed.
            auto_refresh=False,
        )
        self._task = self._bar.add_task(label, total=num_total, headline="")
        self._bar.start()

    def show(self) -> None:
        self._bar.update(self._task, completed=self.num_done, headline=self.headline)
        self._bar.refresh()

    def close(self) -> None:
        self._bar.stop()


class _Lines(RunProgress):
    def __init__(self, num_total: int, label: str, console: Console) -> None:
        super().__init__(num_total)
        self._label, self._console = label, console
        self._start = monotonic()
        self._shown = self._start - SECONDS_BETWEEN_LINES

    def show(self) -> None:
        now = monotonic()
        if self.num_done < self.num_total and now - self._shown < SECONDS_BETWEEN_LINES:
            return
        self._shown = now
        elapsed = now - self._start
        pace = elapsed / max(1, self.num_done - self.num_earlier)
        self._console.print(
            f"{self._label}: {self.num_done}/{self.num_total} prompts  {self.headline}  "
            f"{elapsed:.0f} s, {pace * (self.num_total - self.num_done):.0f} s left",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip


def open_progress(
    num_total: int, *, label: str, is_shown: bool, console: Console | None = None
) -> RunProgress:
    """The display that suits where stderr goes.

    Args:
        num_total: Prompts times repeats.
        label: What is running.
        is_shown: False shows nothing.
        console: Where to show it; stderr if not given.
    """
    if not is_shown:
        return RunProgress(num_total)
    console = console or Console(file=sys.stderr)
    return (_Bar if console.is_terminal else _Lines)(num_total, label, console)


@contextmanager
def counting(what: str, total: int, is_shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr; the function advances it, and says once how long it may take."""
    console = Console(stderr=True)
    start, done, is_told = monotonic(), 0, False

    def advance(count: int) -> None:
        nonlocal done, is_told
        bar.advance(task, count)
        done += count
        seconds = monotonic() - start
        if done and not is_told and seconds > SECONDS_BEFORE_ESTIMATE:
            is_told = True
            left = seconds * max(0, total - done) / done
            logger.info(f"{what}: {done:,} of about {total:,}, about {left:,.0f} s left")

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )  # fmt: skip
    is_off = not (is_shown and console.is_terminal)
    with Progress(*columns, console=console, transient=True, disable=is_off) as bar:
        task = bar.add_task(what, total=total)
        yield advance
