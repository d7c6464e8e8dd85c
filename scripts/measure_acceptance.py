"""What the tree builder `sequoia` needs to know of a method and a machine, as overrides.

python scripts/measure_acceptance.py results/smollm2-135m/quickstart/rest/RUN
python scripts/measure_acceptance.py RUN --rows 33 --rounds 9
python scripts/measure_acceptance.py RUN --no-rows

From the draft trees that a finished run recorded (`num_traced_prompts=...` records more): how often
the first, second, ... child of a node was accepted. From forwards of the same model on this
machine: what a forward of 1, 2, 3, ... rows costs behind the run's first prompt and its answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.console import new_table, plain_console
from benchmarks.files import RunFolderError
from benchmarks.machine import synchronize
from benchmarks.options import at_least_1
from benchmarks.records import Request
from benchmarks.results import StoredRun, read_runs
from benchmarks.sibling_ranks import RankCount, count_ranks, row_costs
from benchmarks.speed import row_curve
from methods.build import build_model
from methods.targets.errors import ModelUnavailable

MEASURED_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table and the overrides; 2 if the run has no trees, or its model cannot be had."""
    options = parse(arguments)
    try:
        run = _only_run(options.run)
        counts = count_ranks(run.requests)
        if not counts:
            raise RunFolderError(
                f"{options.run} recorded no draft trees: run it with num_traced_prompts=4"
            )
        overrides = [_override("acceptance", [count.rate for count in counts[: options.ranks]])]
        if not options.no_rows:
            num_rows = options.rows or int(run.config["method"]["node_budget"]) + 1
            overrides.append(_override("row_costs", _measure_rows(run, num_rows, options.rounds)))
    except (RunFolderError, ModelUnavailable) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    _print_counts(counts)
    print(" ".join(["tree_builder=sequoia", *overrides]))
    return 0


def _only_run(path: Path) -> StoredRun:
    runs, unusable = read_runs([path])
    if len(runs) != 1:
        reason = str(unusable[0]) if unusable else f"{path} holds {len(runs)} runs: name one"
        raise RunFolderError(reason)
    return runs[0]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--ranks", type=at_least_1, default=8, help="ranks in the override")
    parser.add_argument(
        "--rows", type=at_least_1, help="largest forward; the run's node budget and one without"
    )
    parser.add_argument("--rounds", type=at_least_1, default=5, help="forwards of each size")
    parser.add_argument("--no-rows", action="store_true", help="leave the model alone")
    return parser.parse_args(arguments)


def _measure_rows(run: StoredRun, num_rows: int, num_rounds: int) -> list[float]:
    """Loads the run's model and times its forwards."""
    model = build_model(run.config["model"])
    sizes = [*(size for size in MEASURED_ROWS if size < num_rows), num_rows]
    times = row_curve(
        model.target,
        _context(run.requests),
        sizes,
        num_rounds,
        lambda: synchronize(model.devices),
    )
    return row_costs(times, num_rows)


def _context(requests: Sequence[Request]) -> tuple[int, ...]:
    """The first prompt and its answer."""
    turns = (turn for request in requests for turn in request.turns)
    return next((*turn.prompt_ids, *turn.output_ids) for turn in turns if turn.prompt_ids)


def _print_counts(counts: Sequence[RankCount]) -> None:
    table = new_table("rank", "tried", "accepted", "rate")
    for rank, count in enumerate(counts, start=1):
        cells = (rank, count.num_tried, count.num_accepted, f"{count.rate:.3f}")
        table.add_row(*map(str, cells))
    plain_console().print(table)


def _override(field: str, values: Sequence[float]) -> str:
    return f"'tree_builder.{field}=[{','.join(f'{value:.3f}' for value in values)}]'"


if __name__ == "__main__":
    sys.exit(main())
