"""Writes the README's results table from committed runs, so that no number in it is typed by hand.

python scripts/readme_table.py
python scripts/readme_table.py --check     exits with 1 if the README differs from the results
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparison import markdown, read_summaries, sort_key
from benchmarks.files import read_json

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- results: written by scripts/readme_table.py -->\n"
END = "<!-- end of results -->\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrites the README, or compares."""
    parser = argparse.ArgumentParser(description="README table from results/sample")
    parser.add_argument("--check", action="store_true", help="compare only")
    is_check = parser.parse_args(arguments).check
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    fresh = f"{head}{BEGIN}{results_section(ROOT / 'results' / 'sample')}{END}{tail}"
    if is_check:
        if fresh != text:
            sys.stderr.write("README.md differs from results/sample: run `make table`\n")
        return int(fresh != text)
    readme.write_text(fresh, encoding="utf-8")
    return 0


def results_section(folder: Path) -> str:
    """One table per model and dataset, with a line about the hardware."""
    summaries = sorted(read_summaries([folder]), key=sort_key)
    env = read_json(sorted(folder.rglob("env.json"))[-1])
    assert env is not None
    return f"{hardware(env)}\n\n{markdown(summaries)}"


def hardware(env: dict[str, Any]) -> str:
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
