"""N-gram-tree stores on disk: the most frequent short n-grams of a corpus, each with its tree.

    header.json
    ngrams.bin      one per row, read backwards, filled up with `vocab_size` [m, max_ngram]
    hashes.bin      of the rows, ascending: uint64 [m]
    num_hits.bin    occurrences of each that were counted: uint16 [m]
    offsets.bin     where the nodes of each begin: uint32 [m + 1]
    token_ids.bin, parents.bin (uint8), counts.bin (uint16)    of all nodes

What the arrays mean stands in `primitives.structures.ngram_trees`. They are made from a token
store: in its order of suffixes all occurrences of an n-gram are neighbours.

Source: CREST (Ho et al. 2024, arXiv 2408.04678): n-grams by falling frequency, until the budget of
bytes is used up; the tree of an n-gram is what REST would draft behind it.
Cost: O(n * max_ngram) for n tokens to count, one `CountTrie` per kept n-gram. About 24 bytes per
n-gram and 5 per node, with ids of 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt

from methods.datastores.folder import (
    DatastoreError,
    Header,
    building,
    check_files,
    mapped,
    read_header,
    write_header,
)
from methods.datastores.frequent_ngrams import Run, frequent_ngrams
from primitives.structures.count_trie import CountTrie
from primitives.structures.ngram_trees import ROOT, NgramTrees, hashes_of_rows
from primitives.structures.suffix_array import Match, TokenStore, id_dtype
from primitives.types import MAX_DRAFT_NODES, MAX_NGRAM

MAX_HITS = 2**16 - 1
"""Counts have 16 bits."""
DTYPES: dict[str, np.dtype[Any]] = {
    "hashes": np.dtype("<u8"),
    "num_hits": np.dtype("<u2"),
    "offsets": np.dtype("<u4"),
    "parents": np.dtype("u1"),
    "counts": np.dtype("<u2"),
}
ID_ARRAYS = ("ngrams", "token_ids")
MOST = {
    "max_ngram": MAX_NGRAM,
    "num_tokens": MAX_DRAFT_NODES,
    "max_nodes": ROOT,
    "max_hits": MAX_HITS,
}
"""Largest values of settings."""


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """What is kept of a corpus.

    Attributes:
        min_ngram: Shortest n-gram, in tokens, at least 1.
        max_ngram: Longest n-gram, in tokens, in [`min_ngram`, 64].
        min_count: Least occurrences of an n-gram, at least 1.
        max_bytes: Size of all arrays at most, in bytes, at least 1.
        num_tokens: Depth of a tree, in tokens, in [1, 1024].
        max_nodes: Most nodes of a tree, in [1, 255].
        max_hits: Most occurrences of an n-gram that are counted in its tree, in [1, 65535].
    """

    min_ngram: int = 1
    max_ngram: int = 5
    min_count: int = 2
    max_bytes: int = 2**26
    num_tokens: int = 10
    max_nodes: int = 64
    max_hits: int = 5000

    def __post_init__(self) -> None:
        for name in ("min_ngram", "min_count", "max_bytes", "num_tokens", "max_nodes", "max_hits"):
            if getattr(self, name) < 1:
                raise ValueError(f"datastore.{name} must be ≥ 1, got {getattr(self, name)}")
        if self.max_ngram < self.min_ngram:
            raise ValueError(
                f"datastore.max_ngram must be ≥ min_ngram ({self.min_ngram}), got {self.max_ngram}"
            )
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise ValueError(f"datastore.{name} must be ≤ {most}, got {getattr(self, name)}")


def build_ngram_tree_store(
    path: Path,
    store: TokenStore,
    settings: TreeSettings,
    *,
    corpus: Header,
    command: str = "",
    options: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Header:
    """Writes the trees of a token store.

    Args:
        path: Where they will be; nothing may be there.
        store: An open token store.
        settings: What is kept.
        corpus: The header of the token store: what both were made from.
        command: The command that builds this one.
        options: What else its content depends on.
        progress: Told the bytes of each kept tree.

    Raises:
        DatastoreError: If the token store has several chunks, no n-gram is frequent enough, or the
            place cannot be written.
    """
    with building(path) as folder:
        trees = ngram_trees(store, settings, progress=progress)
        for name, dtype in _dtypes(store.vocab_size).items():
            getattr(trees, name).astype(dtype, copy=False).tofile(folder / f"{name}.bin")
        header = Header(
            kind="ngram_trees",
            vocab_size=store.vocab_size,
            token_dtype=corpus.token_dtype,
            tokenizer_hash=corpus.tokenizer_hash,
            num_tokens=corpus.num_tokens,
            num_documents=corpus.num_documents,
            model=corpus.model,
            sources=corpus.sources,
            command=command,
            options={**(options or {}), **_values(settings), "num_keys": len(trees.hashes)},
            report={**corpus.report, "num_nodes": len(trees.token_ids)},
        )
        return write_header(folder, header)


def open_ngram_tree_store(
    path: Path,
    *,
    tokenizer_hash: str | None = None,
    vocab_size: int | None = None,
    model: Mapping[str, Any] | None = None,
) -> tuple[NgramTrees, Header]:
    """The trees, mapped into memory, and their header; the keywords are as in `read_header`.

    Raises:
        DatastoreError: If it is not a whole and undamaged n-gram-tree store for this use.
    """
    header = read_header(
        path, kind="ngram_trees", tokenizer_hash=tokenizer_hash, vocab_size=vocab_size, model=model
    )
    check_files(path, header)
    shapes = {"ngrams": (-1, header.options["max_ngram"])}
    arrays = {
        name: mapped(path / f"{name}.bin", dtype, shape=shapes.get(name, (-1,)))
        for name, dtype in _dtypes(header.vocab_size).items()
    }
    return NgramTrees(**arrays, vocab_size=header.vocab_size), header


def ngram_trees(
    store: TokenStore, settings: TreeSettings, progress: Callable[[int], None] | None = None
) -> NgramTrees:
    """The most frequent n-grams of a token store and their trees, as far as the bytes go.

    Equally frequent n-grams are kept in the order of their length, then of the suffix array.

    Raises:
        DatastoreError: If the store has several chunks, or no n-gram is frequent enough.
    """
    if len(store.chunks) > 1:
        raise DatastoreError(
            f"n-gram trees are counted in one chunk, this corpus has {len(store.chunks)}: set "
            "datastore.chunk_tokens to its number of tokens, or take fewer with datastore.limit"
        )
    kept = _Kept(store, settings)
    runs = frequent_ngrams(
        store.chunks[0],
        min_ngram=settings.min_ngram,
        max_ngram=settings.max_ngram,
        min_count=settings.min_count,
    )
    for run in runs:
        num_bytes = kept.add(run)
        if not num_bytes:
            break
        if progress is not None:
            progress(num_bytes)
    if not kept.runs:
        raise DatastoreError(
            f"no n-gram of {settings.min_ngram} to {settings.max_ngram} tokens occurs "
            f"{settings.min_count} times and has a tree of at most {settings.max_bytes} bytes"
        )
    return kept.trees()


@dataclass
class _Kept:
    """N-grams and nodes of a store under construction."""

    store: TokenStore
    settings: TreeSettings
    runs: list[Run] = field(default_factory=list)
    num_hits: list[int] = field(default_factory=list)
    tries: list[tuple[UInt[np.ndarray, "t"], ...]] = field(default_factory=list)
    num_bytes: int = 0

    def add(self, run: Run) -> int:
        """Bytes of the n-gram and its tree; 0 if there is no room for them."""
        settings, vocab_size = self.settings, self.store.vocab_size
        match = Match(run.length, ((0, run.low, run.high),))
        [(chunk, _, ends)] = self.store.ends(match, settings.max_hits)
        trie = CountTrie(
            chunk.behind(ends, settings.num_tokens), end=vocab_size, limit=settings.max_nodes
        )
        num_bytes = self._bytes(len(trie.counts))
        if self.num_bytes + num_bytes > settings.max_bytes:
            return 0
        self.num_bytes += num_bytes
        self.runs.append(run)
        self.num_hits.append(len(ends))
        last = trie.rows[trie.firsts, trie.lengths - 1]
        parents = np.where(trie.parents < 0, ROOT, trie.parents)
        self.tries.append((last, parents.astype(np.uint8), trie.counts.astype(np.uint16)))
        return num_bytes

    def _bytes(self, num_nodes: int) -> int:
        id_bytes = id_dtype(self.store.vocab_size).itemsize
        fixed = sum(DTYPES[name].itemsize for name in ("hashes", "num_hits", "offsets"))
        per_node = id_bytes + sum(DTYPES[name].itemsize for name in ("parents", "counts"))
        return fixed + id_bytes * self.settings.max_ngram + num_nodes * per_node

    def trees(self) -> NgramTrees:
        """All of it, in the order of the hashes."""
        ngrams = self._ngrams()
        # Of n-grams with one hash, the more frequent one comes first and is kept.
        hashes, rows = np.unique(hashes_of_rows(ngrams, self.store.vocab_size), return_index=True)
        tries = [self.tries[row] for row in rows.tolist()]
        sizes = [len(counts) for _, _, counts in tries]
        return NgramTrees(
            ngrams=ngrams[rows],
            hashes=hashes,
            num_hits=np.array(self.num_hits, dtype=np.uint16)[rows],
            offsets=np.cumsum([0, *sizes]).astype(np.uint32),
            token_ids=np.concatenate([ids for ids, _, _ in tries]),
            parents=np.concatenate([parents for _, parents, _ in tries]),
            counts=np.concatenate([counts for _, _, counts in tries]),
            vocab_size=self.store.vocab_size,
        )

    def _ngrams(self) -> UInt[np.ndarray, "m w"]:
        chunk, vocab_size = self.store.chunks[0], self.store.vocab_size
        shape = (len(self.runs), self.settings.max_ngram)
        ngrams = np.full(shape, vocab_size, dtype=id_dtype(vocab_size))
        lengths = np.array([run.length for run in self.runs])
        ends = chunk.order[[run.low for run in self.runs]]
        for distance in range(1, self.settings.max_ngram + 1):
            rows = np.flatnonzero(lengths >= distance)
            ngrams[rows, distance - 1] = chunk.tokens[ends[rows] - distance]
        return ngrams


def _values(settings: TreeSettings) -> dict[str, int]:
    """Of these settings alone: a configuration that holds them has more fields."""
    return {item.name: getattr(settings, item.name) for item in fields(TreeSettings)}


def _dtypes(vocab_size: int) -> dict[str, np.dtype[Any]]:
    """The type of each array, in a fixed order."""
    return {**dict.fromkeys(ID_ARRAYS, id_dtype(vocab_size)), **DTYPES}
