"""How opening a token store and proposing from it grow with the store.

python scripts/bench_store_sizes.py
python scripts/bench_store_sizes.py --sizes 4 40 100

Stores of synthetic text are built one after another. Prints, by millions of tokens, the time of the
build and of opening, the memory that opening takes, the time of `propose` and the bytes per token.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.bench_inputs import MILLION, build_store, windows
from benchmarks.clock import seconds
from benchmarks.console import plain_console
from benchmarks.options import at_least_1
from methods.datastores.tokens import open_token_store
from primitives.retrievers.suffix_array import SuffixArrayRetriever
from primitives.types import Context

CHOICES = 64
OPEN_MS, OPEN_MIB = 50.0, 100.0
"""The targets: opening takes at most this time and memory."""
MIB = 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        bench_sizes(Path(folder), options.sizes, options.queries)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=at_least_1, nargs="+", default=[4, 40, 100], help="millions of tokens"
    )
    parser.add_argument("--queries", type=at_least_1, default=1000, help="per store")
    return parser.parse_args(arguments)


def bench_sizes(folder: Path, sizes: Sequence[int], num_queries: int) -> None:
    """Opening and proposing by size of the store."""
    table = Table(
        "million tokens", "build s", "open ms", "private MiB", "propose us", "bytes/token"
    )
    for size in sizes:
        path = folder / str(size)
        build_s = seconds(lambda: build_store(path, synthetic(size * MILLION), 49_152))  # noqa: B023
        before = private_memory()
        store, header = open_token_store(path)
        growth = (private_memory() - before) / MIB
        opens = [seconds(lambda: open_token_store(path)) for _ in range(5)]  # noqa: B023
        open_ms = 1000 * np.median(opens)
        retriever_us = propose_median(store, num_queries)
        table.add_row(
            str(size),
            f"{build_s:.1f}",
            f"{open_ms:.1f} (≤ {OPEN_MS:.0f})",
            f"{growth:.1f} (≤ {OPEN_MIB:.0f})",
            f"{retriever_us:.0f}",
            f"{header.num_bytes / header.num_tokens:.2f}",
        )
        shutil.rmtree(path)
    plain_console().print(table)


def synthetic(num_tokens: int) -> Iterator[np.ndarray]:
    """Documents of a thousand tokens: frequent and rare ones, and phrases that come again."""
    rng = np.random.default_rng(0)
    phrases = (rng.zipf(1.3, (5000, 20)) - 1) % 49_152
    for _ in range(num_tokens // 1000):
        yield phrases[(rng.zipf(1.3, 50) - 1) % len(phrases)].reshape(-1)


def propose_median(store: Any, num: int) -> float:
    """Microseconds of the median query, taken from the store's text."""
    retriever = SuffixArrayRetriever()
    retriever.attach(store)
    queries = windows([np.asarray(store.chunks[0].tokens)], num, np.random.default_rng(1))
    times = []
    for query in queries:
        ids = np.array(query, dtype=np.int64)
        context = Context(ids_with_pending=ids, num_prompt_tokens=1, vocab_size=store.vocab_size)
        times.append(seconds(lambda: retriever.propose(context, CHOICES)))  # noqa: B023
    return float(np.median(times)) * MILLION


def private_memory() -> int:
    """Bytes of memory that no file backs."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()
