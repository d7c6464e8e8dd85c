"""What a store of hidden states is built from, on disk: a stream of documents, spooled.

    tokens.bin, offsets.bin    as in the finished store, see `hidden_states`
    hidden.raw                 float16 or float32, one row per key: removed once the keys are made

The projection of the keys is fitted on hidden states of all documents, so all are kept until then.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import BinaryIO

import numpy as np

from methods.datastores.folder import DatastoreError
from primitives.structures.suffix_array import id_dtype

TOKENS, OFFSETS, RAW = "tokens.bin", "offsets.bin", "hidden.raw"

Document = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Token ids [t]; keys, float32 [k, d]: vectors that enter the LM head; and, ascending, the index of
the first token behind each [k]."""


class HiddenSpool:
    """The documents of a build: tokens and offsets in their final form, hidden states as they came.

    Args:
        folder: Where the files go.
        vocab_size: Ids are in [0, vocab_size).
        spool: Type of the hidden states on disk: `float16` or `float32`.
        expected_keys: How many keys to expect, for the check of the disk beforehand.
        dim: Dimensions of the keys that will be made of them, for the same.

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
        self.token_dtype = id_dtype(vocab_size)
        self.num_documents = self.num_tokens = self.num_keys = self.hidden_size = 0
        self._expected_keys, self._dim = expected_keys, dim
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> HiddenSpool:
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
