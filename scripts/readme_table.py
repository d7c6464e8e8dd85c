"""Writes tables of committed runs into documents, so that no number in them is typed by hand.

python scripts/readme_table.py
python scripts/readme_table.py --check     exits with 1 if a document differs from the results

Reads the runs in results/sample and results/sense, and writes the tables in README.md and
results/sense/README.md, between the two comments that mark their place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparison import markdown, sort_key
from benchmarks.results import read_runs

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = {
    "README.md": "results/sample",
    "results/sense/README.md": "results/sense",
    "results/tasks/README.md": "results/tasks",
}
"""Where tables stand, and the runs that they come from."""
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
    for name, folder in DOCUMENTS.items():
        document = ROOT / name
        text = document.read_text(encoding="utf-8")
        head, _, rest = text.partition(BEGIN)
        tail = rest.partition(END)[2]
        fresh = f"{head}{BEGIN}{results_section(ROOT / folder)}{END}{tail}"
        if not is_check:
            document.write_text(fresh, encoding="utf-8")
        elif fresh != text:
            sys.stderr.write(f"{name} differs from {folder}: run `make table`\n")
            code = 1
    return code


def results_section(folder: Path) -> str:
    """One table per model and dataset, with a line about the hardware."""
    runs, unusable = read_runs([folder])
    if unusable:
        raise SystemExit(f"committed results must be whole: {unusable[0]}")
    summaries = sorted((run.summary for run in runs), key=sort_key)
    return f"{hardware(runs[-1].env)}\n\n{markdown(summaries)}"


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
