"""The suffix array retriever on real tokens, beside REST's own library.

python scripts/bench_suffix_array.py
python scripts/bench_suffix_array.py --tokens 8 --queries 2000
python scripts/bench_suffix_array.py --sizes 4 40 100

Tokens are Python sources of installed packages, tokenised for the embedded model. Prints, for three
kinds of query, the time of `propose` (candidates included) and of REST's search loop (spans of 16
down to 2 tokens, 64 choices) on the same documents, interleaved in one process, the best of a few
rounds per query, as other processes disturb single ones; the speed of a build beside that of the
sort alone; bytes per token; and with `--sizes` (millions of tokens of synthetic text) how opening
and proposing grow with the store.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.options import at_least_1, number_at_least_1
from methods.datastores.tokens import build_token_store, open_token_store
from methods.targets.smollm2 import cache_root, ensure_smollm2
from primitives.retrievers.suffix_array import SuffixArrayRetriever
from primitives.types import Context

SPANS = range(16, 1, -1)
CHOICES = 64
CONTEXT = 24
ROUNDS = 3
TIME_RATIO, BUILD_RATIO, OPEN_MS, OPEN_MIB = 0.2, 0.8, 50.0, 100.0
"""The targets: propose takes at most this part of REST's time, and so on."""
MILLION = 10**6
MIB = 2**20
CONSOLE = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
Query = list[int]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if options.sizes:
            bench_sizes(Path(folder), options)
        else:
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
    parser.add_argument("--sizes", type=at_least_1, nargs="*", help="millions of synthetic tokens")
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
        best = {arm: np.percentile(values, (50, 99)) for arm, values in times.items()}
        ratios = best["ours"] / best["draftretriever"]
        for arm, (median, high) in best.items():
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


def corpus(num_tokens: int) -> tuple[list[np.ndarray], int]:
    """Documents of at least `num_tokens` tokens together, made once; and the vocabulary's size."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ensure_smollm2())
    file = cache_root() / "bench" / f"python-{num_tokens}.npy"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        ends = [[*ids, len(tokenizer)] for ids in tokenised_sources(tokenizer, num_tokens)]
        partial = file.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(ends).astype(np.uint16))
        partial.replace(file)
    tokens = np.load(file)
    cuts = np.flatnonzero(tokens == len(tokenizer))
    return [part[part != len(tokenizer)] for part in np.split(tokens, cuts)[:-1]], len(tokenizer)


def tokenised_sources(tokenizer: Any, num_tokens: int) -> Iterator[list[int]]:
    """Ids of the Python files of transformers and torch, until there are enough."""
    import torch
    import transformers

    roots = [Path(module.__file__).parent for module in (transformers, torch)]
    files = [file for root in roots for file in sorted(root.rglob("*.py"))]
    for low in range(0, len(files), 64):
        texts = [file.read_text(encoding="utf-8") for file in files[low : low + 64]]
        for ids in tokenizer([text for text in texts if text], verbose=False)["input_ids"]:
            yield ids
            num_tokens -= len(ids)
            if num_tokens <= 0:
                return


def bench_build(path: Path, documents: list[np.ndarray], vocab_size: int) -> None:
    """Throughput of a build and of the library's sort of the same array."""
    from pydivsufsort import divsufsort

    text = np.concatenate([np.append(ids, vocab_size) for ids in documents]).astype(np.uint16)
    alone, ours = [], []
    for _ in range(3):
        alone.append(seconds(lambda: divsufsort(text)))
        shutil.rmtree(path, ignore_errors=True)
        ours.append(seconds(lambda: build(path, documents, vocab_size)))
    _, header = open_token_store(path)
    rates = [len(text) / np.median(values) / MILLION for values in (alone, ours)]
    CONSOLE.print(
        f"build {rates[1]:.2f} M tokens/s, the library's sort alone {rates[0]:.2f}: ratio "
        f"{rates[1] / rates[0]:.2f} (target ≥ {BUILD_RATIO}); "
        f"{header.num_bytes / header.num_tokens:.2f} bytes per token"
    )


def build(path: Path, documents: Any, vocab_size: int) -> None:
    """A store without facts about its origin."""
    build_token_store(path, documents, vocab_size=vocab_size, tokenizer_hash="bench")


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


def windows(documents: list[np.ndarray], num: int, rng: np.random.Generator) -> list[Query]:
    """Contexts at random places of documents."""
    text = np.concatenate([ids for ids in documents if len(ids) > CONTEXT])
    starts = rng.integers(0, len(text) - CONTEXT, num)
    return [text[start : start + CONTEXT].tolist() for start in starts.tolist()]


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
    """Microseconds (best of a few rounds) and success per query, arm after arm."""
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    found: dict[str, list[bool]] = {arm: [] for arm in arms}
    for query in queries[:20]:
        for ask in arms.values():
            ask(query)
    for query in queries:
        rounds: dict[str, list[float]] = {arm: [] for arm in arms}
        for _ in range(ROUNDS):
            for arm, ask in arms.items():
                rounds[arm].append(seconds(lambda: ask(query)) * MILLION)  # noqa: B023
        for arm, ask in arms.items():
            times[arm].append(min(rounds[arm]))
            found[arm].append(ask(query))
    return times, found


def bench_sizes(folder: Path, options: argparse.Namespace) -> None:
    """Opening and proposing by size of the store."""
    table = Table(
        "million tokens", "build s", "open ms", "private MiB", "propose us", "bytes/token"
    )
    for size in options.sizes:
        path = folder / str(size)
        build_s = seconds(lambda: build(path, synthetic(size * MILLION), 49_152))  # noqa: B023
        before = private_memory()
        store, header = open_token_store(path)
        growth = (private_memory() - before) / MIB
        opens = [seconds(lambda: open_token_store(path)) for _ in range(5)]  # noqa: B023
        open_ms = 1000 * np.median(opens)
        retriever_us = propose_median(store, options.queries)
        table.add_row(
            str(size),
            f"{build_s:.1f}",
            f"{open_ms:.1f} (≤ {OPEN_MS:.0f})",
            f"{growth:.1f} (≤ {OPEN_MIB:.0f})",
            f"{retriever_us:.0f}",
            f"{header.num_bytes / header.num_tokens:.2f}",
        )
        shutil.rmtree(path)
    CONSOLE.print(table)


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


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
