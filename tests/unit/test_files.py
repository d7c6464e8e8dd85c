"""Locks of one process at a time. (Files that are replaced whole: test_run_folder.py.)"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from filelock import FileLock

from methods import files
from methods.files import wait_for


def test_a_free_lock_is_taken_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = FileLock(tmp_path / "lock")
    with caplog.at_level(logging.INFO):
        wait_for(lock, "builds it")
    assert lock.is_locked
    assert not caplog.messages


def test_who_waits_long_is_told_for_what(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = FileLock(tmp_path / "lock")
    holder.acquire()

    class Asking(FileLock):
        """Finds the lock free once it has been told of."""

        def acquire(self, *args: object, **options: object) -> object:
            if caplog.messages:
                holder.release()
            return super().acquire(*args, **options)

    monkeypatch.setattr(files, "SILENT_S", 0.01)
    lock = Asking(tmp_path / "lock")
    with caplog.at_level(logging.INFO):
        wait_for(lock, "builds it")
    assert lock.is_locked
    assert caplog.messages == ["waiting for another process, which builds it"]
