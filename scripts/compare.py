"""Puts finished runs into one table per model and dataset.

python scripts/compare.py results/smollm2-135m/quickstart
python scripts/compare.py --details --format markdown RUN_OR_FOLDER ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.comparison import markdown, print_comparison, sort_key
from benchmarks.files import RunFolderError
from benchmarks.results import read_runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="run folders, or folders of runs")
    parser.add_argument("--format", choices=("text", "markdown"), default="text")
    parser.add_argument(
        "--details", action="store_true", help="also how drafts are made and where time goes"
    )
    options = parser.parse_args(arguments)
    try:
        runs, unusable = read_runs(options.paths, keep_stopped=True)
        if not runs:
            raise RunFolderError(f"no finished run; the first folder: {unusable[0]}")
    except RunFolderError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    runs = sorted(runs, key=lambda run: sort_key(run.summary))
    for folder in unusable:
        sys.stderr.write(f"left out: {folder}\n")
    if options.format == "markdown":
        print(markdown(runs, has_details=options.details), end="")
    else:
        print_comparison(runs, has_details=options.details)
    return 0


if __name__ == "__main__":
    sys.exit(main())
