"""Ranks finished runs: a table per device, model, number format, budget, prompts and code version.

python scripts/leaderboard.py results
python scripts/leaderboard.py results other_results --format html --output leaderboard.html
python scripts/leaderboard.py results --dataset gsm8k --format csv
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.files import RunFolderError, write_atomically
from benchmarks.leaderboard import Leaderboard, build_leaderboard
from benchmarks.leaderboard.latex import to_latex
from benchmarks.leaderboard.markdown import to_markdown
from benchmarks.leaderboard.page import to_html
from benchmarks.leaderboard.tidy import to_csv
from benchmarks.options import output_file
from benchmarks.results import StoredRun, Unusable, read_runs

FORMATS: dict[str, Callable[[Leaderboard], str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "html": to_html,
    "latex": to_latex,
}
WITHOUT_NOTICES = ("csv", "latex")
"""Formats for programs: what was left out is told on stderr instead."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the tables: 0 if there are any, 2 if the folders hold nothing to show."""
    options = _parse(arguments)
    try:
        runs, unusable = read_runs(options.paths, keep_stopped=True)
        leaderboard = build_leaderboard(_chosen(runs, unusable, options.dataset), unusable)
        _write(FORMATS[options.format](leaderboard), options.output)
    except RunFolderError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if options.format in WITHOUT_NOTICES:
        sys.stderr.writelines(f"left out: {item}\n" for item in leaderboard.left_out)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="run folders, or folders of runs")
    parser.add_argument("--format", choices=tuple(FORMATS), default="markdown")
    parser.add_argument("--output", type=output_file, help="file to write; stdout if not given")
    parser.add_argument("--dataset", help="only runs on this dataset")
    return parser.parse_args(arguments)


def _chosen(
    runs: Sequence[StoredRun], unusable: Sequence[Unusable], dataset: str | None
) -> list[StoredRun]:
    """The runs to show.

    Raises:
        RunFolderError: If there are none.
    """
    if not runs:
        raise RunFolderError(
            f"no finished run: none of the {len(unusable)} run folders can be used; the first: "
            f"{unusable[0]}"
        )
    chosen = [run for run in runs if dataset in (None, run.facts["dataset"])]
    if not chosen:
        names = sorted({str(run.facts["dataset"]) for run in runs})
        raise RunFolderError(f"no run on --dataset {dataset}; there are runs on {', '.join(names)}")
    return chosen


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    write_atomically(output, text.encode())


if __name__ == "__main__":
    sys.exit(main())
