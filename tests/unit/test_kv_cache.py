"""The tree cache where layers live on different devices; `meta` stands for the second one."""

from __future__ import annotations

import torch

from methods.targets.kv_cache import TreeCache


def rows(first, num, device="cpu"):
    """Keys [1, 1, num, 1] that say which row they are."""
    return torch.arange(first, first + num, dtype=torch.float32, device=device).view(1, 1, num, 1)


def test_layers_on_two_devices_commit_the_same_path():
    cache = TreeCache(num_layers=2, capacity=8)
    for layer, device in zip(cache.layers, ("cpu", "meta"), strict=True):
        layer.update(rows(0, 3, device), rows(0, 3, device))
    cache.commit(range(3))
    for layer, device in zip(cache.layers, ("cpu", "meta"), strict=True):
        keys, _ = layer.update(rows(10, 4, device), rows(10, 4, device))
        assert keys.device.type == device
    cache.commit([0, 2, 3])
    assert cache.layers[0].keys[0, 0, :6, 0].tolist() == [0.0, 1.0, 2.0, 10.0, 12.0, 13.0]
    assert [layer.num_rows for layer in cache.layers] == [6, 6]
    assert cache.layers[1].keys.device.type == "meta"
    cache.check_integrity()
