"""A lock of a run folder that somebody else holds for just as long as a test needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from benchmarks.run_files import LOCK


def hold_until_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Holds the lock of a run folder until the run asks for it.

    Args:
        folder: The run folder, which exists.
        monkeypatch: Its end is the end of the watch.

    Returns:
        How long whoever asked was ready to wait, in seconds; filled as they ask.
    """
    held = FileLock(folder / LOCK)
    held.acquire()
    patiences: list[float] = []

    class Asked(FileLock):
        def acquire(self, timeout: float | None = None, *args: Any, **options: Any) -> Any:
            if held.is_locked and self.lock_file == held.lock_file:
                with pytest.raises(Timeout):
                    super().acquire(timeout=0)
                assert timeout is not None
                patiences.append(timeout)
                held.release()
            return super().acquire(timeout, *args, **options)

    monkeypatch.setattr("benchmarks.run_folder.FileLock", Asked)
    return patiences
