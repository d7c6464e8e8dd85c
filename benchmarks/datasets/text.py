"""Plain text or code for datastores: `dataset=text dataset.path=FILE_OR_FOLDER`.

Files are read in pieces, so that one enormous file, or one enormous line, needs no memory of its
size. Pieces end at a line end where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Dataset, DatasetLoader
from benchmarks.datasets.reader import DatasetError, Faults, OnError


@DATASETS.register("text")
@dataclass(frozen=True, kw_only=True)
class TextFiles(DatasetLoader):
    """UTF-8 files, in the order of their names.

    Attributes:
        path: A file, or a folder that is searched with all its subfolders.
        pattern: Which names count in a folder, e.g. `*.py`.
        max_chars: Longest piece, in characters, at least 1.
        on_error: At a file that is no UTF-8 text, `stop` or `skip` it.
    """

    splits: ClassVar[tuple[str, ...]] = ("train",)

    path: str | None = None
    pattern: str = "*"
    max_chars: int = 200_000
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        Faults(on_error=self.on_error)  # Refuses any other word.
        if self.max_chars < 1:
            raise ValueError(f"max_chars must be ≥ 1, got {self.max_chars}")
        if not self.pattern:
            raise ValueError("pattern must name files, e.g. *.txt, got an empty text")

    def load(self, split: str) -> Dataset:
        """There are no prompts in a text.

        Raises:
            DatasetError: Always.
        """
        raise DatasetError(
            "dataset=text holds no prompts: it is for scripts/build_datastore.py datastore=tokens"
        )

    @property
    def root(self) -> Path:
        """The folder, or the one that the file lies in."""
        path = Path(self.path or "").expanduser()
        return path.parent if path.is_file() else path

    def files(self) -> list[Path]:
        """The files, at least one.

        Raises:
            DatasetError: If the path is not given, or nothing is there.
        """
        if not self.path:
            raise DatasetError("dataset=text needs dataset.path=FILE_OR_FOLDER")
        path = Path(self.path).expanduser()
        if not path.exists():
            raise DatasetError(f"{path}: no such file or folder (current folder: {Path.cwd()})")
        if path.is_file():
            return [path]
        try:
            found = sorted(file for file in path.rglob(self.pattern) if file.is_file())
        except (ValueError, NotImplementedError) as error:
            raise DatasetError(f"dataset.pattern={self.pattern!r} is no pattern: {error}") from None
        if not found:
            raise DatasetError(f"{path}: no file in this folder is named like {self.pattern!r}")
        return found

    def pieces(self, faults: Faults) -> Iterator[tuple[Path, str]]:
        """Pairs (file, piece of its text), blank pieces left out.

        Raises:
            DatasetError: At a file that is no UTF-8 text, unless `faults` skips it.
        """
        for file in self.files():
            try:
                for piece in self._pieces_of(file):
                    yield file, piece
            except DatasetError as fault:
                faults.report(fault)

    def _pieces_of(self, file: Path) -> Iterator[str]:
        rest = ""
        with file.open("rb") as raw:
            decoder = _Decoder(file)
            while block := raw.read(self.max_chars):
                rest += decoder.decode(block)
                while len(rest) > self.max_chars:
                    end = rest.rfind("\n", 0, self.max_chars) + 1 or self.max_chars
                    yield from _unless_blank(rest[:end])
                    rest = rest[end:]
            rest += decoder.decode(b"", is_last=True)
        yield from _unless_blank(rest)


class _Decoder:
    """Strict UTF-8 over blocks, with the place of what is none."""

    def __init__(self, file: Path) -> None:
        self.file, self.offset, self.left = file, 0, b""

    def decode(self, block: bytes, *, is_last: bool = False) -> str:
        data = self.left + block
        if b"\0" in data:
            raise DatasetError(f"{self.file}: expected text, found a NUL byte: a binary file?")
        try:
            text, used = data.decode("utf-8"), len(data)
        except UnicodeDecodeError as error:
            is_cut = error.end == len(data) and len(data) - error.start < 4 and not is_last
            if not is_cut:
                raise DatasetError(
                    f"{self.file}: expected utf-8, found byte 0x{data[error.start]:02x} at byte "
                    f"{self.offset + error.start} ({error.reason})"
                ) from None
            text, used = data[: error.start].decode("utf-8"), error.start
        self.left = data[used:]
        self.offset += used
        return text


def _unless_blank(text: str) -> Iterator[str]:
    if text.strip():
        yield text
