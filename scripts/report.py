"""Puts finished runs on one HTML page that opens without a network.

python scripts/report.py results/smollm2-135m
python scripts/report.py RUN_OR_FOLDER ... --output report.html --plots figures --plot-format pdf
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.files import RunFolderError
from benchmarks.options import at_least_1, output_file
from benchmarks.report.page import write_report
from benchmarks.report.plots import FORMATS
from benchmarks.report.token_view import MAX_PROMPTS
from benchmarks.results import read_runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page and prints where it is."""
    options = _parser().parse_args(arguments)
    output = options.output or options.paths[0] / "report.html"
    try:
        runs, unusable = read_runs(options.paths, keep_stopped=True)
        if not runs:
            reasons = "\n".join(f"  {one}" for one in unusable)
            raise RunFolderError(f"no finished run to show:\n{reasons}")
        write_report(
            output,
            runs,
            unusable,
            plots=options.plots,
            plot_format=options.plot_format,
            max_prompts=options.prompts,
        )
    except RunFolderError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for one in unusable:
        sys.stderr.write(f"left out: {one}\n")
    print(output)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="run folders, or folders of runs")
    parser.add_argument(
        "--output",
        type=output_file,
        help="the HTML file (default: report.html in the first folder)",
    )
    parser.add_argument("--plots", type=Path, help="a folder to save the figures in as well")
    parser.add_argument("--plot-format", choices=FORMATS, default=FORMATS[0])
    parser.add_argument(
        "--prompts",
        type=at_least_1,
        default=MAX_PROMPTS,
        help="prompts per run to show token by token (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
