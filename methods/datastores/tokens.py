"""Token stores on disk: documents as ids with a suffix array over the reversed text.

    header.json
    tokens-00000.bin    ids of the chunk's documents, each followed by the separator `vocab_size`
    order-00000.bin     ends of the chunk, sorted by the reversed text before them (int32)
    starts-00000.bin    per token the rank of the first end behind it (int32)
    tokens-00001.bin    ...

A separator is no token, so no match and no continuation crosses the end of a document. What the
arrays mean stands in `primitives.structures.suffix_array`; a store is that structure, mapped.

Source: He et al. 2023, REST (arXiv 2311.08252), section 3.2, keeps tokens and suffix array chunk by
chunk, too; `pydivsufsort` sorts (Mori, libdivsufsort).
Cost: building needs `build_memory` bytes; a store takes 6 bytes per token, 8 if ids need 32 bits,
and 4 per token of the vocabulary and chunk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Integer

from methods.datastores.folder import (
    DatastoreError,
    Header,
    building,
    check_files,
    mapped,
    read_header,
    write_header,
)
from primitives.structures.suffix_array import SuffixArray, TokenStore, id_dtype

CHUNK_TOKENS = 2**27
MAX_CHUNK_TOKENS = 2**29
"""Three bytes per token of such a chunk can still be numbered with 31 bits."""
BLOCK = 2**20
"""Elements that are processed at a time, where temporary arrays would otherwise be large."""
ORDER_DTYPE = np.dtype("<i4")
FIXED_MEMORY = 64 * 2**20
"""Bytes that a build needs whatever the size of a chunk: blocks in work and the vocabulary."""

Documents = Iterable[Sequence[int] | Integer[np.ndarray, "_"]]


def build_token_store(
    path: Path,
    documents: Documents,
    *,
    vocab_size: int,
    tokenizer_hash: str,
    model: Mapping[str, Any] | None = None,
    sources: Sequence[Mapping[str, Any]] = (),
    command: str = "",
    options: Mapping[str, Any] | None = None,
    report: Mapping[str, Any] | None = None,
    chunk_tokens: int = CHUNK_TOKENS,
    num_tokens: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Header:
    """Writes a store; documents are read once, and one chunk at a time is in memory.

    Args:
        path: Where it will be; nothing may be there.
        documents: Their ids; empty ones are left out. A document that is longer than a chunk is
            split, and no match reaches across the cut.
        vocab_size: Ids are in [0, vocab_size).
        tokenizer_hash: For the header, as are model, sources, command, options and report.
        chunk_tokens: Most ids and separators of a chunk: what bounds the memory of the build.
        num_tokens: Of all documents, if it is known: then memory and disk space are checked for
            all of it before the first document is read, and otherwise chunk by chunk.
        progress: Called after each chunk with the tokens that are finished.

    Raises:
        DatastoreError: If there is no document, an id is outside the vocabulary, memory or disk
            space do not suffice, or the place cannot be written.
    """
    if not 2 <= chunk_tokens <= MAX_CHUNK_TOKENS:
        raise DatastoreError(f"chunk_tokens must be in [2, {MAX_CHUNK_TOKENS}], got {chunk_tokens}")
    num_known, num_documents = 0, 0

    def counted() -> Iterator[Integer[np.ndarray, "n"]]:
        nonlocal num_known, num_documents
        for ids in _checked(documents, vocab_size):
            num_known, num_documents = num_known + len(ids), num_documents + 1
            yield ids

    with building(path) as folder:
        if num_tokens is not None:
            _check_room(folder, num_tokens, chunk_tokens, vocab_size)
        num_done = 0
        for number, tokens in enumerate(_chunks(counted(), vocab_size, chunk_tokens)):
            _check_room(folder, len(tokens), chunk_tokens, vocab_size, held=tokens.nbytes)
            _write_chunk(folder, number, tokens, vocab_size)
            num_done += int(np.count_nonzero(tokens != vocab_size))
            if progress is not None:
                progress(num_done)
        if num_documents == 0:
            raise DatastoreError(f"cannot build {path}: there is no document with a token")
        return write_header(
            folder,
            Header(
                kind="tokens",
                vocab_size=vocab_size,
                token_dtype=id_dtype(vocab_size).name,
                tokenizer_hash=tokenizer_hash,
                num_tokens=num_known,
                num_documents=num_documents,
                model=model or {},
                sources=tuple(sources),
                command=command,
                options={**(options or {}), "chunk_tokens": chunk_tokens},
                report=report or {},
            ),
        )


def open_token_store(
    path: Path,
    *,
    tokenizer_hash: str | None = None,
    vocab_size: int | None = None,
    model: Mapping[str, Any] | None = None,
) -> tuple[TokenStore, Header]:
    """The store, mapped into memory, and its header; the keywords are as in `read_header`.

    Raises:
        DatastoreError: If it is not a whole and undamaged token store for this use.
    """
    header = read_header(
        path,
        kind="tokens",
        tokenizer_hash=tokenizer_hash,
        vocab_size=vocab_size,
        model=model,
    )
    check_files(path, header)
    num_chunks = sum(name.startswith("tokens-") for name in header.files)
    dtypes = {"tokens": id_dtype(header.vocab_size), "order": ORDER_DTYPE, "starts": ORDER_DTYPE}
    chunks = [
        SuffixArray(*(mapped(path / _name(part, i), dtype) for part, dtype in dtypes.items()))
        for i in range(num_chunks)
    ]
    try:
        store = TokenStore(chunks, header.vocab_size)
    except ValueError as error:
        raise DatastoreError(f"datastore {path} cannot be mapped: {error}") from error
    return store, header


def build_memory(num_tokens: int, chunk_tokens: int, vocab_size: int) -> int:
    """Bytes that building a store takes at its peak, estimated from the size of a chunk."""
    return FIXED_MEMORY + min(num_tokens, chunk_tokens) * _memory_per_token(vocab_size)


def _memory_per_token(vocab_size: int) -> int:
    """Of a chunk: ids, bytes to be sorted, their suffix array, and a mark per end."""
    width = _sort_width(vocab_size)
    return id_dtype(vocab_size).itemsize + width + ORDER_DTYPE.itemsize * width + 1


def _sort_width(max_id: int) -> int:
    """Bytes in which ids up to `max_id` are sorted."""
    return (max_id.bit_length() + 7) // 8


def _checked(documents: Documents, vocab_size: int) -> Iterator[Integer[np.ndarray, "n"]]:
    """The documents with tokens, as arrays."""
    for number, document in enumerate(documents):
        ids = np.asarray(document)
        if ids.size == 0:
            continue
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise DatastoreError(
                f"document {number} must be a sequence of ints, got {ids.dtype} {ids.shape}"
            )
        if ids.min() < 0 or ids.max() >= vocab_size:
            bad = int(ids[(ids < 0) | (ids >= vocab_size)][0])
            raise DatastoreError(
                f"document {number} holds the id {bad}, outside the vocabulary of {vocab_size}: "
                "it was tokenised with another tokenizer"
            )
        yield ids


def _chunks(
    documents: Iterable[Integer[np.ndarray, "n"]], vocab_size: int, chunk_tokens: int
) -> Iterator[Integer[np.ndarray, "n"]]:
    """Documents with their separators, packed in order into chunks; valid until the next one."""
    # Pages of it that are never written are never taken from the system.
    chunk = np.empty(chunk_tokens, dtype=id_dtype(vocab_size))
    used = 0
    for document in documents:
        for start in range(0, len(document), chunk_tokens - 1):
            part = document[start : start + chunk_tokens - 1]
            if used + len(part) >= chunk_tokens:
                yield chunk[:used]
                used = 0
            chunk[used : used + len(part)] = part
            chunk[used + len(part)] = vocab_size
            used += len(part) + 1
    if used:
        yield chunk[:used]


def _write_chunk(
    folder: Path, number: int, tokens: Integer[np.ndarray, "n"], vocab_size: int
) -> None:
    num_tokens = len(tokens)
    tokens.tofile(folder / _name("tokens", number))
    is_token = tokens != vocab_size
    is_end = np.zeros(num_tokens + 1, dtype=bool)
    np.logical_and(is_token[:-1], is_token[1:], out=is_end[1:num_tokens])
    counts = np.zeros(vocab_size, dtype=np.int64)
    for low in range(0, num_tokens, BLOCK):
        last = tokens[low : low + BLOCK][is_end[low + 1 : low + BLOCK + 1]]
        counts += np.bincount(last, minlength=vocab_size)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(ORDER_DTYPE)
    starts.tofile(folder / _name("starts", number))
    with (folder / _name("order", number)).open("wb") as stream:
        for suffixes in _sorted_suffixes(tokens):
            ends = np.subtract(num_tokens, suffixes, dtype=ORDER_DTYPE)
            stream.write(ends[is_end[ends]])


def _sorted_suffixes(tokens: Integer[np.ndarray, "n"]) -> Iterator[Int[np.ndarray, "b"]]:
    """Starts of the suffixes of the reversed text in lexicographic order, block by block.

    The library sorts bytes: ids are written with their highest byte first, and of all suffixes
    those remain that begin with an id.
    """
    from pydivsufsort import divsufsort

    width = _sort_width(int(tokens.max()))
    text = np.empty((len(tokens), width), dtype=np.uint8)
    for low in range(0, len(tokens), BLOCK):
        block = tokens[::-1][low : low + BLOCK].astype(">u4")
        text[low : low + BLOCK] = block.view(np.uint8).reshape(-1, 4)[:, 4 - width :]
    suffixes = divsufsort(text.reshape(-1))
    for low in range(0, len(suffixes), BLOCK):
        block = suffixes[low : low + BLOCK]
        yield block if width == 1 else block[block % width == 0] // width


def _name(part: str, number: int) -> str:
    return f"{part}-{number:05d}.bin"


def _check_room(
    folder: Path, num_tokens: int, chunk_tokens: int, vocab_size: int, held: int = 0
) -> None:
    """Whether memory and disk suffice for `num_tokens`; `held` bytes of it are in use already."""
    needed, available = build_memory(num_tokens, chunk_tokens, vocab_size), available_memory()
    if available is not None and needed > available + held:
        room = max(0, available + held - FIXED_MEMORY) // _memory_per_token(vocab_size)
        raise DatastoreError(
            f"building this store takes {_mib(needed)} of memory, {_mib(available + held)} are "
            f"available: set datastore.chunk_tokens to at most {room}"
        )
    num_chunks = -(-num_tokens // chunk_tokens)
    per_token = id_dtype(vocab_size).itemsize + ORDER_DTYPE.itemsize
    num_bytes = num_tokens * per_token + num_chunks * (vocab_size + 1) * ORDER_DTYPE.itemsize
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise DatastoreError(
            f"building this store takes {_mib(num_bytes)} of disk space, {_mib(free)} are free in "
            f"{folder.parent}: free the place, or choose another one"
        )


def available_memory() -> int | None:
    """Bytes of memory that are available without swapping; None if the system does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return next(
            1024 * int(line.split()[1])
            for line in text.splitlines()
            if line.startswith("MemAvailable:")
        )
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"
