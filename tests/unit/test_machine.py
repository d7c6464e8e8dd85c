"""Peak memory belongs to one run of a process, not to all before it."""

from __future__ import annotations

import sys

import pytest
import torch

from benchmarks.machine import peak_memory, reset_peak_memory, synchronize

CPU = [torch.device("cpu")]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget a peak")
def test_a_peak_is_forgotten():
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    block = torch.ones(40_000_000)  # 160 MB, touched.
    with_block = peak_memory(CPU)
    assert with_block - before > 120e6
    del block
    assert peak_memory(CPU) == pytest.approx(with_block, rel=0.02)
    reset_peak_memory(CPU)
    assert peak_memory(CPU) < with_block - 100e6


def test_there_is_nothing_to_wait_for_on_a_cpu():
    synchronize(CPU)
