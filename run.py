"""Measures one method on one model and one dataset, beside its vanilla baseline.

python run.py method=pld model=smollm2-135m dataset=quickstart
python run.py --help lists every choice and option; -m sweeps them. Some experiments are sweeps:
python run.py experiment=table3
"""

from __future__ import annotations

import os
import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import configs
from benchmarks.cli import Outcome, measure, start_logging
from benchmarks.comparison import differing, print_comparison, with_labels
from benchmarks.files import RunFolderError
from benchmarks.outcomes import (
    INTERRUPTED,
    CellOutcome,
    label_of,
    note_outcome,
    note_start,
    note_sweep,
    read_cells,
    read_outcomes,
)
from benchmarks.paper_lines import print_table
from benchmarks.paper_tables import table_of_experiments
from benchmarks.results import StoredRun, read_run
from benchmarks.shards import whole_run
from methods.targets.tensor_parallel import is_follower, world_size

SWEEP_DIR, SUBDIR = "hydra.sweep.dir=", "hydra.sweep.subdir="
SHOWS_ONLY = ("--help", "--hydra-help", "--version", "--cfg", "--info", "--shell-completion")
"""Options of Hydra that run nothing."""
OUTCOMES: list[Outcome] = []
"""Of a single run, which takes place in this process."""


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def main(config: DictConfig) -> None:
    """Config -> objects -> run folder; a user's mistake is one message, not a traceback."""
    start_logging()
    if HydraConfig.get().mode == RunMode.RUN:
        OUTCOMES.append(measure_one(config))
    else:
        measure_cell(config, Path(HydraConfig.get().runtime.output_dir))


def measure_one(config: DictConfig, cell: Path | None = None) -> Outcome:
    """One run; a cell of a sweep is told where its results will be."""
    chosen = HydraConfig.get().runtime.choices
    label = label_of(HydraConfig.get().overrides.task)
    try:
        configs.drop_own_settings(config, chosen, HydraConfig.get().overrides.task)
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        swapped = configs.swapped_primitives(chosen["method"], chosen)
        if cell is None:
            return measure(plain, swapped)
        return measure(plain, swapped, on_start=lambda path: note_start(cell, label, path))
    except OmegaConfBaseException as error:
        return Outcome(code=2, message=str(error))


def measure_cell(config: DictConfig, folder: Path) -> None:
    """One cell of a sweep, here or in a job; whatever happens to it stops none of the others."""
    label = label_of(HydraConfig.get().overrides.task)
    note_start(folder, label)
    try:
        outcome = measure_one(config, folder)
    except Exception as error:
        traceback.print_exc()
        outcome = Outcome(code=1, message=f"{type(error).__name__}: {error}")
    path = None if outcome.path is None else str(outcome.path.resolve())
    note_outcome(
        folder, CellOutcome(label=label, code=outcome.code, message=outcome.message, path=path)
    )
    if outcome.code == INTERRUPTED:
        raise KeyboardInterrupt


def sweep(words: Sequence[str]) -> int:
    """All cells, then what became of them."""
    folder = Path("outputs/multirun", f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}")
    for word in words:
        if word.startswith(SUBDIR):
            sys.exit(f"error: {SUBDIR[:-1]} is the number of a cell, by which it is found again")
        if word.startswith(SWEEP_DIR):  # The user wants another one.
            folder = Path(word.removeprefix(SWEEP_DIR))
    note_sweep(folder, words)
    sys.argv[1:] = ["-m", *words, f"{SWEEP_DIR}{folder}"]
    start_logging()
    code = 0
    try:
        main()
    except KeyboardInterrupt:  # What has been measured is reported.
        code = INTERRUPTED
        sys.stderr.write("interrupted; jobs that were submitted go on (squeue, scancel)\n")
    except SystemExit:  # Hydra has told of an error of the launcher, such as a killed worker.
        code = 1
    outcomes = read_outcomes(folder)
    runs = report(outcomes)
    print_paper_table(words, runs, folder)
    sys.stdout.write(f"python scripts/sweep_status.py {shlex.quote(str(folder))}\n")
    if code == 0 and len(outcomes) < len(read_cells(folder)):
        code = 1
    return max([code, *(outcome.code for outcome in outcomes)])


def report(outcomes: Sequence[CellOutcome]) -> list[StoredRun]:
    """Tells what failed, prints one table of the others, and gives their runs."""
    for outcome in outcomes:
        if outcome.message:
            sys.stderr.write(f"error in {outcome.label}: {outcome.message.strip()}\n")
    labels = {whole_run(Path(o.path)): o.label for o in outcomes if o.path and o.code == 0}
    runs = [read_run(path) for path in labels if path is not None]
    if len(runs) > 1:
        names = differing([label for path, label in labels.items() if path is not None])
        print_comparison(with_labels(runs, names))
    return runs


def print_paper_table(words: Sequence[str], runs: Sequence[StoredRun], folder: Path) -> None:
    """The table of an experiment that there are published figures of: ours beside them, and which
    cells of the sweep in the folder are missing.
    """
    table = table_of_experiments(list(chain(*configs.experiments(words))))
    if table is None or not runs:
        return
    try:
        print_table(table, runs, [folder])
    except RunFolderError as error:  # Such as a swapped retriever, which the table has no row for.
        sys.stderr.write(f"no table of {table.name}: {error}\n")


def arguments_of(words: Sequence[str]) -> tuple[list[str], bool]:
    """The words without `-m`, and whether they are a sweep.

    Raises:
        HydraException: If an experiment cannot be read.
        ValueError: If an experiment or an option does not fit the others.
    """
    if unknown := configs.unknown_choice(words):
        raise ValueError(unknown)
    # Hydra takes -m in front of the overrides only; people put it anywhere.
    arguments = [word for word in words if word not in ("-m", "--multirun")]
    if any(word.startswith(SHOWS_ONLY) or word in ("-h", "-c", "-i", "-sc") for word in arguments):
        return arguments, False
    has_flags = any(word.startswith("-") for word in arguments)
    by_itself = not has_flags and configs.sweeps_by_itself(arguments)
    return arguments, len(arguments) < len(words) or by_itself


if __name__ == "__main__":
    try:
        arguments, is_sweep = arguments_of(sys.argv[1:])
    except (HydraException, ValueError) as error:
        sys.exit(f"error: {error}")
    if is_sweep and world_size() > 1:
        sys.exit("error: torchrun starts the processes of one run, not of a sweep: run its cells")
    if is_sweep:
        sys.exit(sweep(arguments))
    sys.argv[1:] = arguments
    # Rank 0 tells what there is to tell.
    with (
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere if is_follower() else sys.stdout),
    ):
        main()
    for outcome in OUTCOMES:
        if outcome.message:
            sys.stderr.write(f"error: {outcome.message.strip()}\n")
    sys.exit(max((outcome.code for outcome in OUTCOMES), default=0))
