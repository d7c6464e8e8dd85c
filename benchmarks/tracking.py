"""A run shown in Weights & Biases, online or offline, or not at all.

What is sent are copies: the run folder stays the result, and no number comes back from here. The
tracker is told something between prompts only, never while an answer is timed. wandb's sampling of
system metrics is off, since its reading of all processes and GPUs would share the machine with the
loop that is measured; so are its capture of the console and of the code.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.files import RunFolderError, read_json
from benchmarks.records import Request
from benchmarks.run_files import ENVIRONMENT
from benchmarks.tracking_values import TABLE_COLUMNS, RunningSums, flatten_summary, table_row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

Mode = Literal["online", "offline", "off"]
MODES: tuple[Mode, ...] = ("online", "offline", "off")
DEFAULT_PROJECT = "sd-primitives"
_SETTINGS: dict[str, Any] = {
    "silent": True,
    "console": "off",
    "save_code": False,
    "disable_code": True,
    "disable_git": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "init_timeout": 20,
    "finish_timeout": 60,
    "reinit": "create_new",
}
"""Times are in seconds: what could not be uploaded at the end by then can be synced later. By
default a second run in a process would be added to the first one if a failure left that open;
`create_new` keeps them apart."""


class Tracker:
    """Is told how a run goes; tells nobody."""

    @property
    def is_active(self) -> bool:
        """Whether anything that it is told is kept."""
        return False

    def log_prompt(self, requests: Sequence[Request]) -> None:
        """A prompt is complete, measured now or in an earlier session.

        Args:
            requests: Its rows of one repeat.
        """

    def log_summary(
        self, summary: Mapping[str, Any], figures: Mapping[str, Figure] | None = None
    ) -> None:
        """The run is complete.

        Args:
            summary: What `summary.json` holds.
            figures: Plots by name.
        """

    def close(self, *, is_failed: bool) -> None:
        """Ends it; nothing can be told after."""


class _WandbTracker(Tracker):
    """Tells wandb, until wandb fails."""

    def __init__(self, run: Any, *, is_offline: bool) -> None:
        self._run, self._is_offline, self._is_active = run, is_offline, True
        self._running = RunningSums()
        self._rows: list[list[Any]] = []
        # A run that is resumed online has the history of its earlier sessions already.
        self._num_known = int(run.step)

    @property
    def is_active(self) -> bool:
        return self._is_active

    def log_prompt(self, requests: Sequence[Request]) -> None:
        own = RunningSums()
        for sums in (own, self._running):
            sums.add(requests)
        step = len(self._rows)
        self._rows.append(table_row(requests, own))
        if step < self._num_known:
            return
        values = {"running/tau": self._running.tau, "running/speedup": self._running.speedup}
        known = {name: value for name, value in values.items() if value is not None}
        self._attempt("log a prompt", lambda: self._run.log(known, step=step))

    def log_summary(
        self, summary: Mapping[str, Any], figures: Mapping[str, Figure] | None = None
    ) -> None:
        self._attempt("log the summary", lambda: self._send_summary(summary, figures or {}))

    def _send_summary(self, summary: Mapping[str, Any], figures: Mapping[str, Figure]) -> None:
        import wandb
        from PIL import Image

        def draw(figure: Figure) -> Any:
            # wandb would draw it through pyplot, which it does not import.
            figure.savefig(buffer := io.BytesIO(), format="png")
            return wandb.Image(Image.open(buffer))

        step = max(len(self._rows), self._num_known)
        table = wandb.Table(columns=list(TABLE_COLUMNS), data=self._rows)
        images = {f"plots/{name}": draw(figure) for name, figure in figures.items()}
        self._run.log({"prompts": table, **images}, step=step)
        self._run.summary.update(flatten_summary(summary))

    def close(self, *, is_failed: bool) -> None:
        finish = partial(self._run.finish, exit_code=int(is_failed))
        if not self._is_active:
            # What it was told before it failed is kept, if it can be; one warning is enough.
            with suppress(Exception):
                finish()
        self._attempt("finish", finish)
        if self._is_active and self._is_offline:
            logger.info(f"wandb: to upload this run: wandb sync {Path(self._run.dir).parent}")
        self._is_active = False

    def _attempt(self, what: str, action: Callable[[], None]) -> None:
        if not self._is_active:
            return
        try:
            action()
        # A tracking service may fail in ways that nobody listed, and hours of measurement must not
        # be lost to it; the run folder has all that is not sent.
        except Exception as error:
            self._is_active = False
            logger.warning(f"wandb: could not {what} ({_brief(error)}); the run goes on untracked")


@contextmanager
def open_tracker(
    mode: str,
    *,
    project: str,
    config: Mapping[str, Any],
    facts: Mapping[str, Any],
    directory: Path,
) -> Iterator[Tracker]:
    """The tracker of one run, ended with the block.

    `online` becomes `offline`, with one warning, if wandb cannot start it: no key, no network. Any
    other failure of wandb is one warning too, and the run goes on. All that wandb writes lies in
    `directory/wandb`, but for its service's own log in wandb's cache folder.

    Args:
        mode: `off` does not even import wandb.
        project: The wandb project.
        config: The resolved configuration, as plain values.
        facts: `RunSpec.facts`.
        directory: The run folder, started: its first session is part of the wandb id, so that
            sessions of one folder are one wandb run, and folders with an equal run id are not.

    Raises:
        ValueError: If the mode is none of these.
        RunFolderError: If the folder has no `env.json`.
    """
    if mode not in MODES:
        raise ValueError(f"wandb must be {', '.join(MODES[:-1])} or {MODES[-1]}, got {mode!r}")
    if mode == "off":
        yield Tracker()
        return
    options = {
        "project": project,
        "config": {**config, "run": dict(facts)},
        "name": f"{facts['method']} on {facts['dataset']}",
        "group": facts["model"],
        "id": _wandb_id(facts, directory),
        "resume": "allow",
        "dir": str(directory),
    }
    # Tables pass through the data folder, and an offline run refers to what it left there. Silence
    # must hold before the first call: it is also what keeps wandb from asking for a key.
    data = str((directory / "wandb" / "data").resolve())
    _mute_log()
    with _environment(WANDB_SILENT="true", WANDB_DATA_DIR=data):
        tracker = _start(mode, options)
        is_failed = True
        try:
            yield tracker
            is_failed = False
        finally:
            tracker.close(is_failed=is_failed)


def _start(mode: str, options: Mapping[str, Any]) -> Tracker:
    """The first of online and offline that wandb can start."""
    attempts: tuple[Literal["online", "offline"], ...] = ("online", "offline")
    for attempt in attempts if mode == "online" else attempts[1:]:
        is_offline = attempt == "offline"
        try:
            return _WandbTracker(_init(attempt, options), is_offline=is_offline)
        # As in `_attempt`: whatever fails inside wandb, the measurement is worth more.
        except Exception as error:
            rest = "the run goes on untracked" if is_offline else "this run is tracked offline"
            logger.warning(f"wandb: cannot start {attempt} ({_brief(error)}); {rest}")
            _stop_service()
    return Tracker()


def _init(mode: Literal["online", "offline"], options: Mapping[str, Any]) -> Any:
    import wandb

    return wandb.init(mode=mode, settings=wandb.Settings(**_SETTINGS), **options)


def _stop_service() -> None:
    """wandb's process; the next attempt starts another.

    A start that failed for want of a network leaves the id in use there, also for offline.
    """
    with suppress(Exception):
        import wandb

        wandb.teardown()


def _wandb_id(facts: Mapping[str, Any], directory: Path) -> str:
    """The run id, and when its first session began."""
    known = read_json(directory / ENVIRONMENT)
    if known is None:
        raise RunFolderError(f"{directory} is no run folder: it has no {ENVIRONMENT}")
    digits = "".join(filter(str.isdigit, known["sessions"][0]["time"].partition("+")[0]))
    return f"{facts['run_id']}-{digits}"


def _mute_log() -> None:
    """Keeps wandb's log, tracebacks included, off the console; it has files of its own.

    For good, since its service says farewell when the interpreter ends.
    """
    log = logging.getLogger("wandb")
    log.propagate = False
    if not any(isinstance(handler, logging.NullHandler) for handler in log.handlers):
        log.addHandler(logging.NullHandler())


def _brief(error: Exception) -> str:
    """Its class and the first line of its message."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Environment variables that last as long as the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
