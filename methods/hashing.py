"""What identifies files: all of their bytes, or blocks of them that can be read quickly."""

from __future__ import annotations

import hashlib
from pathlib import Path

NUM_BLOCKS, BLOCK_BYTES = 64, 4096


def file_sha256(file: Path) -> str:
    """SHA-256 of a whole file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def blocks_sha256(file: Path) -> str:
    """SHA-256 of blocks that are spread evenly over a file, in hexadecimal digits.

    Both ends are among them, and all bytes of a file of up to 256 KiB.
    """
    digest = hashlib.sha256()
    last = max(0, file.stat().st_size - BLOCK_BYTES)
    with file.open("rb") as stream:
        for number in range(NUM_BLOCKS):
            stream.seek(last * number // (NUM_BLOCKS - 1))
            digest.update(stream.read(BLOCK_BYTES))
    return digest.hexdigest()
