"""The datastore of hidden states: keys made from a corpus, and what followed each of them.

    tokens.bin       ids of all documents, each followed by the id `vocab_size`: uint16 or uint32
    offsets.bin      per key, where its continuation starts in tokens.bin: uint32, ascending
    projection.npy   float32: the mean, then one row of weights per dimension of a key
    keys.f16         float16, one row per key; absent without re-ranking
    index.faiss      IVF-PQ index over the keys; absent for small stores, which are searched exactly

Opening maps the files into memory; several processes share one copy. A key is the input of the LM
head at a position, z-scored, projected to its principal components and scaled to length one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from methods.datastores.folder import (
    DatastoreError,
    Header,
    building,
    check_files,
    mapped,
    read_header,
    write_header,
)
from methods.datastores.hidden_spool import OFFSETS, RAW, TOKENS, Document, HiddenSpool
from methods.datastores.projection import Projection, fit_projection
from methods.datastores.vector_index import (
    BLOCK_KEYS,
    INDEX,
    RECALL_AT,
    Progress,
    build_ivf,
    import_faiss,
    index_kind,
    nearest,
    open_index,
)

KEYS, PROJECTION = "keys.f16", "projection.npy"


class HiddenStates:
    """An open store; see `primitives.structures.hidden_states.HiddenStateStore`."""

    def __init__(self, path: Path, header: Header, gpu: Literal["auto", "off"]) -> None:
        self._header = header
        self._path, self._gpu = path, gpu
        self._projection = Projection.load(path / PROJECTION)
        self._tokens = mapped(path / TOKENS, header.token_dtype)
        self._offsets = mapped(path / OFFSETS, "uint32")
        self._keys = _map_keys(path, self.dim) if header.options["rerank"] else None
        self._index = open_index(path, header, self._keys, gpu)

    def __reduce__(self) -> tuple[Any, ...]:
        return HiddenStates, (self._path, self._header, self._gpu)

    def __deepcopy__(self, memo: dict[int, Any]) -> HiddenStates:
        return self  # It never changes.

    @property
    def dim(self) -> int:
        """Dimensions of a key."""
        return self._projection.dim

    def project(self, hidden: Float[Tensor, "*rows d"]) -> Float[np.ndarray, "*rows p"]:
        """Hidden states of the target model as keys."""
        return self._projection(hidden)

    def search(
        self, query: Float[np.ndarray, "p"], num: int
    ) -> tuple[Int[np.ndarray, "m"], Float[np.ndarray, "m"]]:
        """Positions and cosines of at most `num` neighbours, best first."""
        numbers, cosines = nearest(self._index, self._keys, query, num)
        return self._offsets[numbers].astype(np.int64), cosines

    def continuation(self, position: int, length: int) -> tuple[int, ...]:
        """At most `length` ids from a position on, up to the end of its document."""
        token_ids = self._tokens[position : position + length].tolist()
        end = self._header.vocab_size
        return tuple(token_ids[: token_ids.index(end)] if end in token_ids else token_ids)


def open_hidden_store(
    path: Path,
    *,
    tokenizer_hash: str | None = None,
    vocab_size: int | None = None,
    model: Mapping[str, Any] | None = None,
    hidden_size: int | None = None,
    gpu: Literal["auto", "off"] = "auto",
) -> tuple[HiddenStates, Header]:
    """Opens a store for searching; returns its header, too.

    Args:
        path: Its folder.
        tokenizer_hash: Of the tokenizer in use; compared if given, likewise the rest.
        vocab_size: Of the target model.
        model: What identifies the target model.
        hidden_size: Of the target model.
        gpu: Whether the index moves to a GPU where this faiss can use one.

    Raises:
        DatastoreError: If it is damaged, was made for something else, or faiss is missing.
    """
    header = read_header(
        path,
        kind="hidden_states",
        tokenizer_hash=tokenizer_hash,
        vocab_size=vocab_size,
        model=model,
    )
    stored = header.options["hidden_size"]
    if hidden_size is not None and hidden_size != stored:
        raise DatastoreError(
            f"datastore {path} holds hidden states of size {stored}, the target model has "
            f"hidden_size {hidden_size}: build one for this model"
        )
    import_faiss()
    check_files(path, header)
    return HiddenStates(path, header, gpu), header


def build_hidden_store(
    path: Path,
    documents: Iterable[Document],
    *,
    vocab_size: int,
    tokenizer_hash: str,
    model: Mapping[str, Any],
    sources: Sequence[Mapping[str, Any]] = (),
    command: str = "",
    options: Mapping[str, Any] | None = None,
    report: Mapping[str, Any] | None = None,
    dim: int = 64,
    train_keys: int = 200_000,
    index: Literal["auto", "flat", "ivf_pq"] = "auto",
    rerank: bool = True,
    spool: Literal["float16", "float32"] = "float16",
    expected_keys: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Header:
    """Builds a store from a stream of documents; equal input gives equal files.

    The hidden states are spooled to disk first, as the projection is fitted on all of them.

    Args:
        path: Becomes the store's folder.
        documents: The stream.
        vocab_size: Of the target model.
        tokenizer_hash: Of its tokenizer.
        model: What identifies it.
        sources: What the documents were made from.
        command: The command that builds the store again.
        options: What else its content depends on.
        report: What else was measured.
        dim: Dimensions of a key; the hidden size if that is less.
        train_keys: Most hidden states that the projection is fitted on.
        index: `flat` searches all keys, `ivf_pq` few of the lists that they are sorted into; `auto`
            chooses by their number.
        rerank: Whether the keys are kept, to rank what an `ivf_pq` index finds by exact cosines.
        spool: Type of the hidden states on disk while the store is built.
        expected_keys: How many keys to expect, for the check of the disk beforehand.
        seed: Of the draws of training data and test queries.
        progress: Told about the progress.

    Raises:
        DatastoreError: If the place cannot be written or is too small, a document is malformed, a
            setting does not fit the number of keys, or faiss is missing.
    """
    for name, value in (("dim", dim), ("train_keys", train_keys)):
        if value < 1:
            raise DatastoreError(f"{name} must be ≥ 1, got {value}")
    progress = progress or _say_nothing
    import_faiss()
    with building(path) as folder:
        corpus = HiddenSpool(folder, vocab_size, spool, expected_keys, dim)
        with corpus:
            for number, document in enumerate(documents):
                corpus.append(number, document)
                progress("reading", corpus.num_keys)
        if not corpus.num_keys:
            raise DatastoreError(f"datastore {path} would be empty: no document has a key")
        kind = index_kind(index, corpus.num_keys)
        keys = _write_keys(corpus, dim, train_keys, seed, progress)
        settings: dict[str, Any] = {"index": kind, "rerank": True}
        measured: dict[str, Any] = {}
        if kind == "ivf_pq":
            settings["rerank"] = rerank
            settings["nlist"], settings["nprobe"], measured[f"recall_at_{RECALL_AT}"] = build_ivf(
                folder / INDEX, keys, rerank=rerank, seed=seed, progress=progress
            )
        settings |= {
            "dim": keys.shape[1],
            "hidden_size": corpus.hidden_size,
            "num_keys": corpus.num_keys,
            "train_keys": train_keys,
            "spool": spool,
            "seed": seed,
        }
        if not settings["rerank"]:
            (folder / KEYS).unlink()
        header = Header(
            kind="hidden_states",
            vocab_size=vocab_size,
            token_dtype=corpus.token_dtype.name,
            tokenizer_hash=tokenizer_hash,
            num_tokens=corpus.num_tokens,
            num_documents=corpus.num_documents,
            model=model,
            sources=tuple(sources),
            command=command,
            options={**(options or {}), **settings},
            report={**(report or {}), **measured},
        )
        return write_header(folder, header)


def _write_keys(
    corpus: HiddenSpool, dim: int, train_keys: int, seed: int, progress: Progress
) -> Float[np.ndarray, "k p"]:
    """Fits the projection, writes the keys, removes the hidden states."""
    raw = corpus.raw_rows()
    progress("fitting", 0)
    projection = fit_projection(raw, dim=dim, num_train=train_keys, seed=seed)
    projection.save(corpus.folder / PROJECTION)
    with (corpus.folder / KEYS).open("wb") as file:
        for start in range(0, len(raw), BLOCK_KEYS // 8):
            block = raw[start : start + BLOCK_KEYS // 8].astype(np.float32)
            file.write(projection(torch.from_numpy(block)).astype(np.float16).tobytes())
            progress("projecting", start + len(block))
    del raw
    (corpus.folder / RAW).unlink()
    return _map_keys(corpus.folder, projection.dim)


def _map_keys(path: Path, dim: int) -> np.ndarray:
    return mapped(path / KEYS, "float16", shape=(-1, dim))


def _say_nothing(phase: str, num_keys: int) -> None:
    """Progress that nobody wants to see."""
