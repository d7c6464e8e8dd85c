"""What a run asks of the machine it is on: to finish its work, and how much memory was used."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def synchronize(devices: Sequence[torch.device]) -> None:
    """Waits for the devices; nothing to do on CPU."""
    for device in _gpus(devices):
        torch.cuda.synchronize(device)


def reset_peak_memory(devices: Sequence[torch.device]) -> None:
    """Forgets the peak so far: a run of a sweep must not report that of an earlier one.

    Where the system cannot forget it (other than Linux), the peak is that of the process.
    """
    for device in _gpus(devices):
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):
        _CLEAR_REFS.write_text("5")


def peak_memory(devices: Sequence[torch.device]) -> int:
    """Peak memory in bytes since the last reset: of the GPUs' allocators, or of the process."""
    gpus = _gpus(devices)
    if gpus:
        return sum(torch.cuda.max_memory_allocated(device) for device in gpus)
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _gpus(devices: Sequence[torch.device]) -> list[torch.device]:
    return [device for device in devices if device.type == "cuda"]
