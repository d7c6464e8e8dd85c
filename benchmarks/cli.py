"""One run from a plain configuration: build, measure, print; shared by `run.py` and scripts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.files import RunFolderError
from benchmarks.outcomes import INTERRUPTED
from benchmarks.plan import Plan, make_plan
from benchmarks.run_spec import RunSpec
from benchmarks.runner import RunResult, run
from benchmarks.table import print_results
from methods.targets.errors import ModelUnavailable


def start_logging() -> None:
    """This project's messages on stderr; of libraries, warnings only."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr, force=True)
    for package in ("benchmarks", "methods"):
        logging.getLogger(package).setLevel(logging.INFO)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one command ended.

    Attributes:
        code: 0 done, 1 the run failed, 2 it could not be started, 130 interrupted.
        message: What to tell the user, if anything.
        summary: What `summary.json` holds, if there are results.
        path: The run folder, if there are results.
    """

    code: int
    message: str | None = None
    summary: Mapping[str, Any] | None = None
    path: Path | None = None


def measure(
    config: Mapping[str, Any],
    swapped: Sequence[str] = (),
    on_start: Callable[[Path], None] = lambda _: None,
) -> Outcome:
    """Runs what a configuration says and prints the results; the run folder's path last.

    Args:
        config: The resolved configuration.
        swapped: Primitives that replace the method's own; they become part of its label.
        on_start: Told the run folder before the first prompt.
    """
    try:
        plan = make_plan(config, swapped)
        ended = plan.find_ended()
        spec = plan.load() if ended is None else None
    except (ValueError, OSError, ModelUnavailable, RunFolderError) as error:
        return Outcome(code=2, message=str(error))
    if spec is None:
        assert ended is not None
        return _show_ended(plan, ended, on_start)
    try:
        on_start(spec.path)
        result = run(spec)
    except RunFolderError as error:
        return Outcome(code=2, message=str(error))
    except ValueError as error:
        if spec.on_error != "stop":
            raise
        reason = f"stopped at the first prompt that failed (on_error=stop): {error}"
        return Outcome(code=1, message=reason)
    except KeyboardInterrupt:
        message = f"interrupted; the same command continues {spec.path}"
        return Outcome(code=INTERRUPTED, message=message)
    return _show(result)


def _show_ended(plan: Plan, path: Path, on_start: Callable[[Path], None]) -> Outcome:
    """What an earlier command has measured; no model is needed for that."""
    try:
        on_start(path)
        return _show(plan.reopen(path))
    except RunFolderError as error:
        return Outcome(code=2, message=str(error))


def _show(result: RunResult) -> Outcome:
    print_results(result.summary)
    if result.was_finished:
        ended = "been stopped early" if result.was_stopped else "finished"
        sys.stdout.write(f"This run had {ended} before; nothing was measured again.\n")
    if result.shards_left:
        names = ", ".join(f"{shard.index}/{shard.num_shards}" for shard in result.shards_left)
        sys.stdout.write(f"These are the prompts of one shard; not done: {names}.\n")
    sys.stdout.write(f"{result.path}\n")
    code = 1 if result.failure else 0
    return Outcome(code=code, message=result.failure, summary=result.summary, path=result.path)


def build_spec(config: Mapping[str, Any], swapped: Sequence[str] = ()) -> RunSpec:
    """Everything a run needs: the plan, and its model and datastore.

    Raises:
        ValueError: If the configuration or a dataset row is wrong.
        RunFolderError: If the results folder cannot be written.
        OSError: If a file cannot be read.
        ModelUnavailable: If the model cannot be had as asked.
    """
    return make_plan(config, swapped).load()
