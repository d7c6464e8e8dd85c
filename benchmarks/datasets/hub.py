"""Datasets on the Hugging Face hub, through the library `datasets` (the optional extra `data`).

A loader pins a commit, so that a dataset stays what it was measured on; `dataset.revision` takes
another one. A branch or a tag is looked up first, and the commit that it points to is loaded.
`Dataset.source` records it as `hub:OWNER/NAME@COMMIT`. Without a network, `dataset.path` names a
copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.datasets.file_loader import FileLoader
from benchmarks.datasets.layouts import NEEDS_EXTRA
from benchmarks.datasets.reader import DatasetError, Faults
from benchmarks.datasets.rows import Row


@dataclass(frozen=True, kw_only=True)
class HubLoader(FileLoader):
    """Base of loaders that read files, or the hub if there is no path.

    Attributes:
        address: OWNER/NAME on the hub.
        hub_config: The hub's name of the part of the dataset; None if it has no parts.
        hub_splits: The hub's names of splits, where they differ from ours.
        pinned: The commit that is loaded by default; None for the newest one.
        revision: Commit, tag or branch on the hub; None takes `pinned`.
    """

    address: ClassVar[str]
    pinned: ClassVar[str | None] = None
    hub_config: ClassVar[str | None] = None
    hub_splits: ClassVar[Mapping[str, str]] = {}

    revision: str | None = None

    def rows(self, split: str, faults: Faults) -> tuple[str, list[Row]]:
        """Where the rows of a split come from, in words, and the rows.

        Raises:
            DatasetError: If `path` has no such split, a file or the hub cannot be read, or a
                revision is given for a file.
        """
        if self.path is None:
            part = HubPart(
                address=self.address,
                config=self.config_name,
                split=self.hub_splits.get(split, split),
            )
            return part.rows(self.name, self.revision or self.pinned, self.first_number)
        if self.revision is not None:
            raise DatasetError(
                "dataset.revision is of the hub: with dataset.path it must be null, "
                f"got {self.revision!r}"
            )
        return super().rows(split, faults)

    @property
    def config_name(self) -> str | None:
        """The hub's name of the part that is asked for."""
        return self.hub_config

    def patterns(self, split: str) -> tuple[str, ...]:
        """Also the names that files have in a copy of the hub's repository."""
        name = self.hub_splits.get(split, split)
        folders = ("data", *([self.config_name] if self.config_name else []))
        copies = [f"{folder}/{name}-*.parquet" for folder in folders]
        return (*super().patterns(split), *copies)


@dataclass(frozen=True, kw_only=True)
class HubPart:
    """One split of a dataset on the hub.

    Attributes:
        address: OWNER/NAME.
        config: Which part of the dataset, in the hub's words; None if it has no parts.
        split: Which split, in the hub's words.
    """

    address: str
    config: str | None
    split: str

    def rows(self, name: str, revision: str | None, first_number: int) -> tuple[str, list[Row]]:
        """`hub:OWNER/NAME@COMMIT` and all rows of it.

        Args:
            name: Of the loader, for messages.
            revision: Commit, tag or branch; None takes the newest commit.
            first_number: Number of the first row.

        Raises:
            DatasetError: If the library is missing, or the hub does not give the rows.
        """
        load = _load_dataset(name)
        try:
            commit = find_commit(self.address, revision)
            table = load(self.address, self.config, split=self.split, revision=commit)
        except _hub_errors() as error:
            raise self._failure(name, revision, error) from None
        source = f"hub:{self.address}@{commit}"
        rows = [
            Row(path=source, line=index, number=first_number + index, fields=dict(item))
            for index, item in enumerate(table)
        ]
        return source, rows

    def _failure(self, name: str, revision: str | None, error: BaseException) -> DatasetError:
        config = "" if self.config is None else f"config {self.config}, "
        at = "" if revision is None else f", revision {revision}"
        reason = " ".join(str(error).split()).rstrip(".")
        return DatasetError(
            f"dataset={name}: cannot read {self.address} ({config}split {self.split}{at}) on the "
            f"Hugging Face hub: {type(error).__name__}: {reason}. "
            "dataset.path=FILE_OR_FOLDER reads a local copy"
        )


def find_commit(address: str, revision: str | None) -> str:
    """The commit that a revision of a dataset on the hub points to; a commit is itself.

    Raises:
        OSError: If there is no such dataset or revision, or it may not be read; where the hub
            cannot be reached, the error of its HTTP client.
    """
    if revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    from huggingface_hub import HfApi

    commit = HfApi().dataset_info(address, revision=revision).sha
    if commit is None:
        raise OSError(f"the hub names no commit of {address}")
    return commit


def _load_dataset(name: str) -> Any:
    try:
        from datasets import load_dataset
    except ImportError:
        raise DatasetError(
            f"dataset={name} on the Hugging Face hub needs the package datasets: {NEEDS_EXTRA}; "
            "dataset.path=FILE_OR_FOLDER reads a local copy"
        ) from None
    return load_dataset


def _hub_errors() -> tuple[type[BaseException], ...]:
    """What the libraries raise when a dataset is not to be had."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    # The base of all errors of the hub's HTTP client, which differs between its versions.
    client_error = HfHubHTTPError.__mro__[1]
    # Unknown configs and splits are ValueErrors; a RuntimeError refuses datasets that are scripts.
    return (OSError, ValueError, RuntimeError, DatasetsError, client_error)
