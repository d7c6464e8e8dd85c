"""Peak memory belongs to one run of a process, not to all before it."""

from __future__ import annotations

import os

import pytest
import torch

from benchmarks.machine import peak_memory, reset_peak_memory, synchronize

CPU = [torch.device("cpu")]


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="only Linux can forget a peak"
)
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


def test_only_gpus_are_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    gpus = [torch.device("cuda", index) for index in range(2)]
    synchronize([*CPU, *gpus])
    assert waited == gpus
