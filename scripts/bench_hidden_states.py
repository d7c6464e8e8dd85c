"""Search time, recall, build time and size of a hidden-state datastore on this machine.

python scripts/bench_hidden_states.py --keys 1000000

The hidden states are made up, but clustered as those of text are: every state is its cluster's
centre plus noise of its own, both normal with a spectrum that falls as 1 / rank; clusters (one per
50 keys) are drawn with Zipf weights. Queries are states of the same law that are not in the store.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import faiss
import numpy as np
import torch

from benchmarks.options import at_least_0, at_least_1, number_at_least_0
from methods.datastores.folder import Header
from methods.datastores.hidden_spool import Document
from methods.datastores.hidden_states import (
    KEYS,
    RECALL_AT,
    HiddenStates,
    build_hidden_store,
    open_hidden_store,
)

VOCAB_SIZE = 49_152
DOCUMENT_LEN = 1024
KEYS_PER_CLUSTER = 50
NUM_QUERIES, NUM_WARM = 1000, 50


class MadeUpStates:
    """A law of hidden states; see the top of the file."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._rng = np.random.default_rng(args.seed)
        self._spectrum = (1 / np.sqrt(np.arange(1, args.hidden_size + 1))).astype(np.float32)
        num_clusters = max(1, args.keys // KEYS_PER_CLUSTER)
        self._centres = self._normal(num_clusters)
        weights = 1 / np.arange(1, num_clusters + 1)
        self._edges = np.cumsum(weights / weights.sum())
        self._noise = args.noise

    def draw(self, num: int) -> np.ndarray:
        clusters = np.searchsorted(self._edges[:-1], self._rng.random(num))
        return self._centres[clusters] + self._noise * self._normal(num)

    def documents(self, num_keys: int) -> Iterator[Document]:
        for start in range(0, num_keys, DOCUMENT_LEN):
            length = min(DOCUMENT_LEN, num_keys - start)
            token_ids = self._rng.integers(0, VOCAB_SIZE, length + 1)
            yield token_ids, self.draw(length), np.arange(1, length + 1)

    def _normal(self, num: int) -> np.ndarray:
        draws = self._rng.standard_normal((num, len(self._spectrum)), dtype=np.float32)
        return draws * self._spectrum


def main(arguments: Sequence[str] | None = None) -> None:
    """Builds a store, searches it, prints."""
    args = parse(arguments)
    torch.set_num_threads(args.threads)
    faiss.omp_set_num_threads(args.threads)
    law = MadeUpStates(args)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        start = time.perf_counter()
        header = build(path, law, args)
        print(
            f"{args.keys:,} keys of {args.dim} dimensions from states of size {args.hidden_size}; "
            f"{args.threads} threads, faiss {faiss.__version__}\n"
            f"build {time.perf_counter() - start:.0f} s, "
            f"{header.num_bytes / args.keys:.0f} bytes per key, "
            f"options {dict(header.options)}, report {dict(header.report)}"
        )
        store, _ = open_hidden_store(path, gpu="off")
        measure(store, path, law, args)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=at_least_1, default=1_000_000)
    parser.add_argument("--dim", type=at_least_1, default=64, help="dimensions of a key")
    parser.add_argument("--hidden-size", type=at_least_1, default=128, help="of the made-up states")
    parser.add_argument(
        "--noise", type=number_at_least_0, default=0.5, help="relative to the spread of centres"
    )
    parser.add_argument("--neighbors", type=at_least_1, default=50, help="asked for per search")
    parser.add_argument("--threads", type=at_least_1, default=2)
    parser.add_argument("--seed", type=at_least_0, default=0)
    return parser.parse_args(arguments)


def build(path: Path, law: MadeUpStates, args: argparse.Namespace) -> Header:
    """The store."""
    return build_hidden_store(
        path,
        law.documents(args.keys),
        vocab_size=VOCAB_SIZE,
        tokenizer_hash="",
        model={},
        dim=args.dim,
        expected_keys=args.keys,
    )


def measure(store: HiddenStates, path: Path, law: MadeUpStates, args: argparse.Namespace) -> None:
    """Times searches one by one, and compares what they find with all keys."""
    hidden = torch.from_numpy(law.draw(NUM_QUERIES))
    queries = store.project(hidden)
    for query in queries[:NUM_WARM]:
        store.search(query, args.neighbors)
    search_ms, project_ms, found = [], [], []
    for row, query in zip(hidden, queries, strict=True):
        start = time.perf_counter()
        store.project(row)
        project_ms.append(1e3 * (time.perf_counter() - start))
        start = time.perf_counter()
        _, cosines = store.search(query, args.neighbors)
        search_ms.append(1e3 * (time.perf_counter() - start))
        found.append(cosines[:RECALL_AT])
    for name, times in (("search", search_ms), ("project", project_ms)):
        median, p99 = np.quantile(times, (0.5, 0.99))
        print(f"{name} {median:.3f} ms in the median, {p99:.3f} ms at p99")
    # Cosines instead of numbers: of several equal keys any will do.
    least = least_true_cosines(path / KEYS, queries, store.dim)
    is_true = [cosines >= cosine - 1e-5 for cosines, cosine in zip(found, least, strict=True)]
    print(f"recall@{RECALL_AT} {np.sum(is_true) / (RECALL_AT * NUM_QUERIES):.3f}")


def least_true_cosines(file: Path, queries: np.ndarray, dim: int) -> np.ndarray:
    """Per query the cosine of its last true neighbour."""
    keys = np.memmap(file, dtype=np.float16, mode="r").reshape(-1, dim)
    best = np.full((RECALL_AT, len(queries)), -np.inf, dtype=np.float32)
    for start in range(0, len(keys), 2**14):
        cosines = keys[start : start + 2**14].astype(np.float32) @ queries.T
        best = np.sort(np.concatenate([best, cosines]), axis=0)[-RECALL_AT:]
    return best[0]


if __name__ == "__main__":
    main()
