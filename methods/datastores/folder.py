"""The folder of a datastore: a header that says what it is, and files that must be what it says.

    header.json     kind, format version, vocabulary, tokenizer, model, sources, sizes and hashes
    *.bin, ...      the data, written by one kind of store

A store is built under a temporary name and renamed when it is complete, so that a killed build
leaves nothing that looks finished. What a crash left behind is swept away by the next build.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from methods.files import wait_for
from methods.hashing import blocks_sha256, file_sha256
from primitives.interfaces import DatastoreKind

FORMAT_VERSION = 1
HEADER = "header.json"
FULL_CHECK_BYTES = 8 * 2**20
"""Files up to this size are hashed whole on opening; of larger ones, blocks spread over them."""


class DatastoreError(ValueError):
    """A datastore that cannot be built or opened; the message says which, why, and what to do."""


class AlreadyBuilt(DatastoreError):
    """Another process has built the store meanwhile, or it was there before."""


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """What a file must be.

    Attributes:
        num_bytes: Its size.
        sha256: Of the whole file.
        blocks_sha256: Of blocks spread evenly over it, which can be checked quickly.
    """

    num_bytes: int
    sha256: str
    blocks_sha256: str


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a store says about itself.

    Attributes:
        kind: `tokens`, `hidden_states`, `bigrams` or `ngram_trees`.
        vocab_size: Ids in [0, vocab_size) are tokens.
        token_dtype: numpy name of the type of stored ids.
        tokenizer_hash: Of the tokenizer that made the ids.
        model: What identifies the model whose answers or hidden states are stored; empty if none
            is involved.
        num_tokens: Tokens of all documents.
        num_documents: Documents.
        sources: What it was made from: names and content hashes.
        command: The command that builds it again.
        options: Everything else that its content depends on.
        report: What was measured while it was built: recall, overlap with test data, seconds.
        format_version: Of the files.
        files: By name; filled in by the build.
    """

    kind: DatastoreKind
    vocab_size: int
    token_dtype: str
    tokenizer_hash: str
    num_tokens: int
    num_documents: int
    model: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[Mapping[str, Any], ...] = ()
    command: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION
    files: Mapping[str, FileFacts] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Bytes of all files but the header."""
        return sum(facts.num_bytes for facts in self.files.values())

    @property
    def content_hash(self) -> str:
        """16 hex digits over the content of all files: part of the id of runs that search them."""
        names = sorted(self.files)
        text = "\n".join(f"{name} {self.files[name].sha256}" for name in names)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def building(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes `path` if the body ends well, and vanishes if it does not.

    The body writes its files and, last, the header with `write_header`. One process builds a store
    at a time; a second one waits, and finds it finished.

    Raises:
        AlreadyBuilt: If something is there already.
        DatastoreError: If the place cannot be written.
    """
    with explain_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.parent / f".{path.name}.lock")
        with wait_for(lock, f"builds the datastore {path.name}"):
            for leftover in path.parent.glob(f".{path.name}.building-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            if path.exists():
                raise AlreadyBuilt(f"{path} exists already")
            temporary = path.parent / f".{path.name}.building-{os.getpid()}"
            temporary.mkdir()
            try:
                yield temporary
                if not (temporary / HEADER).is_file():
                    raise DatastoreError(f"{path} was built without a header")
                os.replace(temporary, path)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)


def write_header(folder: Path, header: Header) -> Header:
    """Writes the header with the sizes and hashes of all files in the folder; returns it."""
    files = {file.name: _facts(file) for file in sorted(folder.iterdir()) if file.name != HEADER}
    header = dataclasses.replace(header, files=files)
    values = dataclasses.asdict(header)
    values["checksum"] = _checksum(values)
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    with (folder / HEADER).open("w", encoding="utf-8") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    return header


def read_header(
    path: Path,
    *,
    kind: DatastoreKind | None = None,
    tokenizer_hash: str | None = None,
    vocab_size: int | None = None,
    model: Mapping[str, Any] | None = None,
) -> Header:
    """The header of a store, checked against what it is to be used for.

    Args:
        path: The store's folder.
        kind: What it must hold, if given; likewise the rest.
        tokenizer_hash: Of the tokenizer in use.
        vocab_size: Of the target model.
        model: What identifies the target model; compared if the store names a model too.

    Raises:
        DatastoreError: If it is no store, unfinished, of a newer format, or made for another use.
    """
    header = _parse_header(path)
    wanted = {"kind": kind, "tokenizer_hash": tokenizer_hash, "vocab_size": vocab_size}
    for name, value in wanted.items():
        found = getattr(header, name)
        if value is not None and found != value:
            raise DatastoreError(
                f"datastore {path} has {name} {found!r}, but {value!r} is needed here: "
                "it was built for another tokenizer or use, build one for this"
            )
    if model is not None and header.model:
        differing = [key for key in header.model if header.model[key] != model.get(key)]
        if differing:
            key = differing[0]
            raise DatastoreError(
                f"datastore {path} was built with a model of {key} {header.model[key]!r}, the "
                f"target model has {model.get(key)!r}: build one for this model"
            )
    return header


def check_files(path: Path, header: Header, *, is_full: bool = False) -> None:
    """Whether the files are what the header says: sizes, and hashes (of blocks of large files).

    Args:
        path: The store's folder.
        header: Its header.
        is_full: Hash large files whole, too: slow, and finds every flipped bit.

    Raises:
        DatastoreError: If a file is missing, truncated or damaged.
    """
    for name, facts in header.files.items():
        file = path / name
        if not file.is_file():
            raise DatastoreError(f"datastore {path} lacks its file {name}: build it again")
        num_bytes = file.stat().st_size
        if num_bytes != facts.num_bytes:
            raise DatastoreError(
                f"datastore {path}: {name} has {num_bytes} bytes instead of {facts.num_bytes}: "
                "it was truncated or overwritten, build it again"
            )
        if is_full or num_bytes <= FULL_CHECK_BYTES:
            is_intact = file_sha256(file) == facts.sha256
        else:
            is_intact = blocks_sha256(file) == facts.blocks_sha256
        if not is_intact:
            raise DatastoreError(f"datastore {path}: {name} is damaged: build it again")


def mapped(file: Path, dtype: np.dtype[Any] | str, *, shape: tuple[int, ...] = (-1,)) -> np.ndarray:
    """An array of a store, mapped into memory for reading.

    Args:
        file: Its elements, row by row.
        dtype: Their type.
        shape: One size may be -1: what the file's size gives.

    Raises:
        DatastoreError: If the file cannot be read, or does not have the elements of the shape.
    """
    try:
        if file.stat().st_size == 0:  # An empty file cannot be mapped.
            return np.empty(0, dtype=dtype).reshape(shape)
        # A plain view: slicing a memmap object costs several times as much.
        return np.asarray(np.memmap(file, dtype=dtype, mode="r")).reshape(shape)
    except (OSError, ValueError) as error:
        raise DatastoreError(f"datastore {file.parent} cannot be mapped: {error}") from error


def _parse_header(path: Path) -> Header:
    file = path / HEADER
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        version = values["format_version"]
        if version == FORMAT_VERSION:
            if values.pop("checksum") != _checksum(values):
                raise ValueError("it is not what the build wrote")
            files = {name: FileFacts(**facts) for name, facts in values.pop("files").items()}
            return Header(**{**values, "sources": tuple(values["sources"])}, files=files)
    except (FileNotFoundError, NotADirectoryError):
        reason = "is no datastore" if path.exists() else "does not exist"
        raise DatastoreError(f"datastore {path} {reason}: it has no {HEADER}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DatastoreError(
            f"datastore {path}: {HEADER} is damaged ({error}): build the store again"
        ) from error
    except OSError as error:
        raise DatastoreError(f"datastore {path} cannot be read: {error}") from error
    raise DatastoreError(
        f"datastore {path} has format {version}, this version reads {FORMAT_VERSION}: "
        "use the version that built it, or build it again"
    )


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turns an `OSError` while something is written for a datastore into a `DatastoreError`."""
    try:
        yield
    except OSError as error:
        place = str(path.parent)
        if error.filename is not None and not os.fsdecode(error.filename).startswith(place):
            raise  # What could not be read is no matter of this place.
        raise DatastoreError(
            f"cannot write {path}: {error.strerror or error}: free the place, or set "
            "SD_PRIMITIVES_CACHE to another folder"
        ) from error


def _checksum(values: Mapping[str, Any]) -> str:
    """Of the rest of a header: what was edited by hand or by accident is not trusted."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _facts(file: Path) -> FileFacts:
    return FileFacts(
        num_bytes=file.stat().st_size, sha256=file_sha256(file), blocks_sha256=blocks_sha256(file)
    )
