"""One SLURM cluster for all tests of this folder; without SLURM or root they are skipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, reason_against, running_cluster
from filelock import FileLock

# Always the same, so that what a killed test run has left behind is found and ended.
FOLDER = Path(tempfile.gettempdir(), "sd-primitives-slurm")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running cluster whose node has four CPUs, however many the machine has."""
    if reason := reason_against():
        pytest.skip(reason)
    with FileLock(f"{FOLDER}.lock", timeout=3600), running_cluster(FOLDER, num_cpus=4) as cluster:
        yield cluster
