"""Writes tables of committed runs into documents, so that no number in them is typed by hand.

python scripts/readme_table.py
python scripts/readme_table.py --check     exits with 1 if a document differs from the results

Reads the runs in results/sample and in the other folders of results, and writes the tables
in README.md and in those of the folders, between the two comments that mark their place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparison import markdown, sort_key
from benchmarks.paper_lines import markdown_table
from benchmarks.paper_tables import TABLES
from benchmarks.results import StoredRun, read_runs

ROOT = Path(__file__).resolve().parent.parent
PAPER = ("table3", "table4", "table5", "scaling")
"""Experiments whose runs are in results/paper, each in a folder of its own."""
BEGIN = "<!-- results: written by scripts/readme_table.py -->\n"
END = "<!-- end of results -->\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrites the documents, or compares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    is_check = parser.parse_args(arguments).check
    code = 0
    for name, section in DOCUMENTS.items():
        document = ROOT / name
        text = document.read_text(encoding="utf-8")
        head, _, rest = text.partition(BEGIN)
        tail = rest.partition(END)[2]
        fresh = f"{head}{BEGIN}{section()}{END}{tail}"
        if not is_check:
            document.write_text(fresh, encoding="utf-8")
        elif fresh != text:
            sys.stderr.write(f"{name} differs from the results: run `make table`\n")
            code = 1
    return code


def comparison(folder: str, *, has_details: bool = False) -> str:
    """One table per model and dataset, with a line about the hardware."""
    runs = committed(folder)
    ordered = sorted(runs, key=lambda run: sort_key(run.summary))
    return f"{hardware(runs[-1].env)}\n\n{markdown(ordered, has_details=has_details)}"


def paper_tables(folder: str) -> str:
    """The tables of a paper, each from the runs of its experiment."""
    return "\n".join(markdown_table(TABLES[name], committed(f"{folder}/{name}")) for name in PAPER)


def committed(folder: str) -> list[StoredRun]:
    """The runs in a folder, in the order in which they were measured."""
    runs, unusable = read_runs([ROOT / folder])
    if unusable:
        raise SystemExit(f"committed results must be whole: {unusable[0]}")
    return sorted(runs, key=lambda run: str(run.env["sessions"][0]["time"]))


DOCUMENTS: dict[str, Callable[[], str]] = {
    "README.md": lambda: comparison("results/sample"),
    "results/sample/README.md": lambda: comparison("results/sample", has_details=True),
    "results/sense/README.md": lambda: comparison("results/sense"),
    "results/tasks/README.md": lambda: comparison("results/tasks"),
    "results/paper/README.md": lambda: paper_tables("results/paper"),
}
"""Where tables stand, and what makes them."""


def hardware(env: Mapping[str, Any]) -> str:
    """What the numbers were measured on."""
    session = env["sessions"][-1]
    versions = session["versions"]
    return (
        f"Greedy, batch 1; {session['cpu'].replace('(R)', '')}, {session['num_threads']} threads, "
        f"no GPU; torch {versions['torch']}, transformers {versions['transformers']}. Brackets are "
        "95 % intervals over prompts; each method ran beside vanilla in the same loop, and the "
        "vanilla row is the one of the first method."
    )


if __name__ == "__main__":
    sys.exit(main())
