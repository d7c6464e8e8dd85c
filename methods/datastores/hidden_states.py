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

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from methods.datastores.folder import (
    DatastoreError,
    Header,
    building,
    check_files,
    read_header,
    write_header,
)
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

TOKENS, OFFSETS, KEYS = "tokens.bin", "offsets.bin", "keys.f16"
PROJECTION = "projection.npy"
RAW = "hidden.raw"

Document = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Token ids [t]; keys, float32 [k, d]: vectors that enter the LM head; and, ascending, the index of
the first token behind each [k]."""


class HiddenStates:
    """An open store; see `primitives.structures.hidden_states.HiddenStateStore`."""

    def __init__(self, path: Path, header: Header, gpu: Literal["auto", "off"]) -> None:
        self._header = header
        self._path, self._gpu = path, gpu
        self._projection = Projection.load(path / PROJECTION)
        self._tokens = _map(path / TOKENS, header.token_dtype)
        self._offsets = _map(path / OFFSETS, "uint32")
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
        corpus = _Corpus(folder, vocab_size, spool, expected_keys, dim)
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


class _Corpus:
    """The documents of a build: tokens and offsets in their final form, hidden states as they came.

    Attributes:
        num_documents: Documents so far; likewise the rest.
        num_tokens: Tokens, without the ids that separate documents.
        num_keys: Hidden states.
        hidden_size: Their size; 0 before the first document.
    """

    def __init__(
        self, folder: Path, vocab_size: int, spool: str, expected_keys: int, dim: int
    ) -> None:
        self.folder, self.vocab_size, self.spool = folder, vocab_size, spool
        self.token_dtype = np.dtype(np.uint16 if vocab_size + 1 <= 2**16 else np.uint32)
        self.num_documents = self.num_tokens = self.num_keys = self.hidden_size = 0
        self._expected_keys, self._dim = expected_keys, dim
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> _Corpus:
        for name in (TOKENS, OFFSETS, RAW):
            self._files[name] = (self.folder / name).open("wb")
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def append(self, number: int, document: Document) -> None:
        """Writes one document.

        Raises:
            DatastoreError: If it is malformed, or the rest would not fit on the disk.
        """
        token_ids, keys, positions = document
        if problem := self._problem(token_ids, keys, positions):
            raise DatastoreError(f"document {number}: {problem}")
        start = self.num_tokens + self.num_documents
        if start + len(token_ids) >= 2**32:
            raise DatastoreError(f"document {number}: a store holds at most {2**32} tokens")
        with np.errstate(over="ignore"):
            rows = keys.astype(self.spool)
        if not np.isfinite(rows).all():
            raise DatastoreError(f"document {number}: its keys overflow {self.spool}: use float32")
        self.hidden_size = keys.shape[1]
        self._check_space(rows)
        ended = np.append(token_ids, self.vocab_size).astype(self.token_dtype)
        offsets = (start + positions.astype(np.int64)).astype(np.uint32)
        for name, array in ((TOKENS, ended), (OFFSETS, offsets), (RAW, rows)):
            self._files[name].write(array.tobytes())
        self.num_documents += 1
        self.num_tokens += len(token_ids)
        self.num_keys += len(rows)

    def raw_rows(self) -> np.ndarray:
        """The hidden states, mapped."""
        shape = (self.num_keys, self.hidden_size)
        return np.memmap(self.folder / RAW, dtype=self.spool, mode="r", shape=shape)

    def _problem(
        self, token_ids: np.ndarray, keys: np.ndarray, positions: np.ndarray
    ) -> str | None:
        """What is wrong with a document."""
        if token_ids.ndim != 1 or token_ids.dtype.kind not in "iu":
            return f"token ids must be integers [t], got {token_ids.dtype} {token_ids.shape}"
        if len(token_ids) and not 0 <= token_ids.min() <= token_ids.max() < self.vocab_size:
            outside = next(t for t in token_ids.tolist() if not 0 <= t < self.vocab_size)
            return f"token ids must be in [0, {self.vocab_size}), got {outside}"
        if keys.ndim != 2 or not keys.shape[1] or keys.dtype.kind != "f":
            return f"keys must be floats [k, d], got {keys.dtype} {keys.shape}"
        if self.hidden_size and keys.shape[1] != self.hidden_size:
            return f"keys have size {keys.shape[1]}, those before it {self.hidden_size}"
        if positions.shape != (len(keys),) or positions.dtype.kind not in "iu":
            return f"{len(keys)} keys need as many positions, got {positions.shape}"
        falls = np.flatnonzero(positions[1:] <= positions[:-1])
        if len(falls):
            first, second = positions[falls[0] : falls[0] + 2].tolist()
            return f"positions must ascend, got {second} behind {first}"
        if len(keys) and not 0 <= positions[0] <= positions[-1] < len(token_ids):
            return (
                f"positions must be in [0, {len(token_ids)}), got {positions[0]} to {positions[-1]}"
            )
        return None if np.isfinite(keys).all() else "a key is not finite"

    def _check_space(self, rows: np.ndarray) -> None:
        total = max(self._expected_keys, self.num_keys + len(rows))
        still_raw = (total - self.num_keys) * self.hidden_size * rows.itemsize
        # Per dimension two bytes of the key and at most half a byte of its code in the index, which
        # adds 8 bytes of number and a share of its centroids; 4 bytes of offset.
        final = total * (3 * min(self._dim, self.hidden_size) + 16)
        free = shutil.disk_usage(self.folder).free
        if still_raw + final > free:
            raise DatastoreError(
                f"{total} keys of size {self.hidden_size} need {(still_raw + final) / 1e9:.1f} GB "
                f"more while the store is built, {free / 1e9:.1f} GB are free: make room, or "
                "store fewer keys"
            )


def _write_keys(
    corpus: _Corpus, dim: int, train_keys: int, seed: int, progress: Progress
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


def _map(file: Path, dtype: str) -> np.ndarray:
    # A plain view: slicing a memmap object costs several times as much.
    array: np.ndarray = np.memmap(file, dtype=dtype, mode="r")
    return np.asarray(array)


def _map_keys(path: Path, dim: int) -> np.ndarray:
    return _map(path / KEYS, "float16").reshape(-1, dim)


def _say_nothing(phase: str, num_keys: int) -> None:
    """Progress that nobody wants to see."""
