"""The suffix array retriever on real tokens, beside REST's own library.

python scripts/bench_suffix_array.py
python scripts/bench_suffix_array.py --tokens 8 --queries 2000

Tokens are Python sources of installed packages, tokenised for the embedded model. Prints, for three
kinds of query, the time of `propose` (candidates included) and of REST's search loop (spans of 16
down to 2 tokens, 64 choices) on the same documents, interleaved in one process, each in turn first,
the median of a few rounds per query, as other processes disturb single ones; the speed of a build
beside that of the sort alone; and bytes per token. How opening and proposing grow with the store is
in bench_store_sizes.py.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.bench_inputs import MILLION, Query, build_store, corpus, rotated, windows
from benchmarks.clock import seconds
from benchmarks.console import plain_console
from benchmarks.options import at_least_1, number_at_least_1
from methods.datastores.tokens import open_token_store
from primitives.retrievers.suffix_array import SuffixArrayRetriever
from primitives.types import Context

SPANS = range(16, 1, -1)
CHOICES = 64
ROUNDS = 3
TIME_RATIO, BUILD_RATIO = 0.2, 0.8
"""The targets: propose takes at most this part of REST's time, a build has at least this part
of the speed of its sort."""
CONSOLE = plain_console()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        bench_real_tokens(Path(folder), options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokens", type=number_at_least_1, default=4.5, help="millions of real tokens"
    )
    parser.add_argument("--queries", type=at_least_1, default=1000, help="per kind")
    return parser.parse_args(arguments)


def bench_real_tokens(folder: Path, options: argparse.Namespace) -> None:
    """Speed against REST's library, and of the build."""
    documents, vocab_size = corpus(int(options.tokens * MILLION))
    held_out = documents[::50]
    documents = [ids for number, ids in enumerate(documents) if number % 50]
    num_tokens = sum(map(len, documents))
    CONSOLE.print(f"{num_tokens:,} tokens of {len(documents):,} Python files, SmolLM2's tokenizer")
    bench_build(folder / "ours", documents, vocab_size)
    arms = {
        "ours": our_arm(folder / "ours", vocab_size),
        "draftretriever": rest_arm(folder / "rest", documents, vocab_size),
    }
    rng = np.random.default_rng(0)
    kinds = {
        "text that is not in the store": windows(held_out, options.queries, rng),
        "text from the store, long matches": windows(documents, options.queries, rng),
        "only the last 3 tokens match": cut_to_three(held_out, documents, options.queries, rng),
    }
    table = Table("query", "arm", "hits found", "median us", "99 % us", "ratios", "target")
    for kind, queries in kinds.items():
        if not queries:
            CONSOLE.print(f"{kind}: none found, give more --queries")
            continue
        times, found = interleaved(arms, queries)
        levels = {arm: np.percentile(values, (50, 99)) for arm, values in times.items()}
        ratios = levels["ours"] / levels["draftretriever"]
        for arm, (median, high) in levels.items():
            is_ours = arm == "ours"
            table.add_row(
                kind,
                arm,
                f"{np.mean(found[arm]):.0%}",
                f"{median:.0f}",
                f"{high:.0f}",
                " / ".join(f"{ratio:.2f}" for ratio in ratios) if is_ours else "",
                f"≤ {TIME_RATIO}" if is_ours else "",
            )
    CONSOLE.print(table)


def bench_build(path: Path, documents: list[np.ndarray], vocab_size: int) -> None:
    """Throughput of a build and of the library's sort of the same array."""
    from pydivsufsort import divsufsort

    text = np.concatenate([np.append(ids, vocab_size) for ids in documents]).astype(np.uint16)
    alone, ours = [], []
    for _ in range(3):
        alone.append(seconds(lambda: divsufsort(text)))
        shutil.rmtree(path, ignore_errors=True)
        ours.append(seconds(lambda: build_store(path, documents, vocab_size)))
    _, header = open_token_store(path)
    rates = [len(text) / np.median(values) / MILLION for values in (alone, ours)]
    CONSOLE.print(
        f"build {rates[1]:.2f} M tokens/s, the library's sort alone {rates[0]:.2f}: ratio "
        f"{rates[1] / rates[0]:.2f} (target ≥ {BUILD_RATIO}); "
        f"{header.num_bytes / header.num_tokens:.2f} bytes per token"
    )


def our_arm(path: Path, vocab_size: int) -> Callable[[Query], bool]:
    """The retriever with its defaults; says whether it found something."""
    retriever = SuffixArrayRetriever()
    retriever.attach(open_token_store(path)[0])

    def ask(query: Query) -> bool:
        ids = np.array(query, dtype=np.int64)
        context = Context(ids_with_pending=ids, num_prompt_tokens=1, vocab_size=vocab_size)
        return bool(retriever.propose(context, CHOICES))

    return ask


def rest_arm(path: Path, documents: list[np.ndarray], vocab_size: int) -> Callable[[Query], bool]:
    """REST's search loop around its library."""
    try:
        import draftretriever
    except ImportError:
        raise SystemExit("this needs draftretriever: pip install '.[bench]'") from None
    writer = draftretriever.Writer(str(path), vocab_size)
    for ids in documents:
        writer.add_entry(ids.tolist())
    writer.finalize()
    reader = draftretriever.Reader(str(path))

    def ask(query: Query) -> bool:
        for span in SPANS:
            tokens, *_ = reader.search(query[-span:], choices=CHOICES)
            if tokens:
                return True
        return False

    return ask


def cut_to_three(
    held_out: list[np.ndarray], documents: list[np.ndarray], num: int, rng: np.random.Generator
) -> list[Query]:
    """Contexts whose last three tokens occur in the documents, but not the last four."""
    text = np.concatenate(documents).astype(np.uint64)
    known = np.unique(text[:-2] << 40 | text[1:-1] << 20 | text[2:])
    absent = int(np.setdiff1d(np.arange(1, 40_000), text)[0])
    queries = []
    for query in windows(held_out, 4 * num, rng):
        first, second, third = query[-3:]
        key = np.uint64(first << 40 | second << 20 | third)
        place = int(np.searchsorted(known, key))
        if place < len(known) and known[place] == key:
            queries.append([*query[:-4], absent, *query[-3:]])
    return queries[:num]


def interleaved(
    arms: dict[str, Callable[[Query], bool]], queries: list[Query]
) -> tuple[dict[str, list[float]], dict[str, list[bool]]]:
    """Microseconds (median of a few rounds) and success per query; arms take turns as the first."""
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    found: dict[str, list[bool]] = {arm: [] for arm in arms}
    for query in queries[:20]:
        for ask in arms.values():
            ask(query)
    for number, query in enumerate(queries):
        rounds: dict[str, list[float]] = {arm: [] for arm in arms}
        for turn in range(ROUNDS):
            for arm, ask in rotated(arms.items(), number + turn):
                rounds[arm].append(seconds(lambda: ask(query)) * MILLION)  # noqa: B023
        for arm, ask in arms.items():
            times[arm].append(float(np.median(rounds[arm])))
            found[arm].append(ask(query))
    return times, found


if __name__ == "__main__":
    main()
