"""From the host to a device without waiting for it: what a step uploads is a few numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def upload(values: np.ndarray, device: torch.device) -> Tensor:
    """The values as a tensor on a device.

    A copy from pageable memory makes the host wait for it; pinned memory is kept alive by torch
    until the copy has been made.
    """
    tensor = torch.tensor(values)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
