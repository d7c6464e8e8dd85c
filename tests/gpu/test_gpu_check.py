"""On a machine with a GPU: the whole check, which certifies every lossless method."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
main = runpy.run_path(str(ROOT / "scripts" / "gpu_check.py"))["main"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_gpu_passes(tmp_path, dtype):
    assert main(["--dtype", dtype, "--limit", "6", "--results-dir", str(tmp_path)]) == 0


@pytest.mark.slow
def test_the_check_runs_on_a_cpu(tmp_path, capsys):
    words = ["--device", "cpu", "--dtype", "float32", "--limit", "1", "--max-new-tokens", "8"]
    assert main([*words, "--seconds", "3600", "--results-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "t(k)/t(1)" in printed
    assert "certificate: passed (exact 1/1)" in printed
    assert "peak memory" in printed
