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
    """The table with a line about the hardware."""
    paths = sorted(folder.glob("*/*/*/*/summary.json"))
    runs = [(read_json(path), read_json(path.parent / "env.json")) for path in paths]
    found = [(summary, env) for summary, env in runs if summary and env]
    if not found:
        raise SystemExit(f"{folder} holds no finished run")
    rows = sorted((row(summary) for summary, _ in found), key=lambda cells: (cells[0], cells[1]))
    header = ["model", "method", "tau", "draft coverage", "tok/s", "speedup", "same ids"]
    lines = [header, ["---"] * 2 + ["---:"] * 5, *rows]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return f"{conditions(*found[-1])}\n\n{table}"


def row(summary: dict[str, Any]) -> list[str]:
    """One run."""
    metrics = summary["metrics"]
    same = metrics["identical_outputs"]
    return [
        summary["run"]["model"],
        summary["run"]["method"],
        with_interval(metrics["tau"], ""),
        f"{100 * metrics['draft_coverage']['value']:.0f} %",
        f"{metrics['vanilla_tokens_per_second']['value']:.0f} -> "
        f"{metrics['tokens_per_second']['value']:.0f}",
        with_interval(metrics[summary["primary_speedup"]], "x"),
        f"{same['value']:.0f}/{same['num_prompts']}",
    ]


def with_interval(metric: dict[str, Any], unit: str) -> str:
    """`2.31x [2.10, 2.52]`."""
    low, high = metric["interval"]
    return f"{metric['value']:.2f}{unit} [{low:.2f}, {high:.2f}]"


def conditions(summary: dict[str, Any], env: dict[str, Any]) -> str:
    """What the numbers were measured on."""
    session = env["sessions"][-1]
    versions = session["versions"]
    return (
        f"{summary['num_prompts']} quickstart prompts x up to 128 tokens, greedy, batch 1; "
        f"{session['cpu'].replace('(R)', '')}, {session['num_threads']} threads, no GPU; torch "
        f"{versions['torch']}, transformers {versions['transformers']}. Brackets are 95 % "
        "intervals over prompts; tok/s is vanilla -> method in the same loop."
    )


if __name__ == "__main__":
    sys.exit(main())
