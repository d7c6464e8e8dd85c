"""A preallocated KV cache that can keep one path of the last tree: the only cache of the project.

    committed rows          rows of the last tree
    [0 ............ s-1] [s+0 s+1 s+2 s+3]        n = 4, path = (0, 2)
    [0 ............ s-1] [s+0 s+2]                after commit: rows moved up, the rest forgotten

Rows are written in place into buffers of fixed capacity; nothing grows by concatenation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, no_type_check

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from methods.targets.transfer import upload


class TreeCacheLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, on the device of that layer.

    Args:
        capacity: Most rows, in tokens.
        dtype: Of the buffers; None takes that of the first keys.

    Attributes:
        num_rows: Rows in use, in tokens.
        fixed_rows: Where the next rows go, in forwards of fixed shapes; None: behind the others.
    """

    is_sliding = False
    is_compileable = False

    def __init__(self, capacity: int, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.capacity = capacity
        self.dtype = dtype
        self.num_rows = 0
        self.fixed_rows: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor | None = None) -> None:
        """Allocates the buffers in the dtype and on the device of the first keys."""
        self.keys = self._buffer(key_states)
        self.values = self._buffer(key_states if value_states is None else value_states)
        self.is_initialized = True

    @no_type_check  # torch.compile traces it, and cannot see through the checks of tests.
    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes new rows [1, heads, n, head_dim] behind the others; returns views of all rows.

        With `fixed_rows` it writes there, and returns the whole buffers.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.fixed_rows is not None:
            self.keys.index_copy_(2, self.fixed_rows, key_states.to(self.keys.dtype))
            self.values.index_copy_(2, self.fixed_rows, value_states.to(self.values.dtype))
            return self.keys, self.values
        start, self.num_rows = self.num_rows, self.num_rows + key_states.shape[2]
        if self.num_rows > self.capacity:
            raise RuntimeError(f"cache of {self.capacity} rows asked to hold {self.num_rows}")
        self.keys[:, :, start : self.num_rows].copy_(key_states)
        self.values[:, :, start : self.num_rows].copy_(value_states)
        return self.keys[:, :, : self.num_rows], self.values[:, :, : self.num_rows]

    def keep(self, num_committed: int, num_kept: int, rows: Tensor | None) -> None:
        """Keeps the committed rows and, moved up behind them, the given ones.

        Args:
            num_committed: Rows that stay where they are.
            num_kept: How many follow them.
            rows: Where those are now; None if they are in place.
        """
        end = num_committed + num_kept
        if rows is not None and self.is_initialized:
            # Gathered before it is written: source and destination overlap.
            self.keys[:, :, num_committed:end] = self.keys[:, :, rows]
            self.values[:, :, num_committed:end] = self.values[:, :, rows]
        self.num_rows = end

    def _buffer(self, states: Tensor) -> Tensor:
        batch, heads, _, head_dim = states.shape
        # Zeros: where whole buffers are attended to, what is masked out must be finite.
        return states.new_zeros((batch, heads, self.capacity, head_dim), dtype=self.dtype)

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        """Key length and offset of the mask; some releases pass positions instead of a length."""
        num_new = query_length if isinstance(query_length, int) else len(query_length)
        return self.num_rows + num_new, 0

    def get_seq_length(self, *args: Any) -> int:
        """Rows held, in tokens."""
        return self.num_rows

    def get_max_length(self) -> int:
        """The capacity, in tokens."""
        return self.capacity

    # Earlier releases of transformers (5.0) call it by this name.
    get_max_cache_shape = get_max_length

    def reset(self) -> None:
        """Forgets all rows; the buffers stay."""
        self.num_rows = 0


class TreeCache(Cache):  # type: ignore[misc]
    """One layer of rows per decoder layer.

    Args:
        num_layers: Decoder layers.
        capacity: Most rows, in tokens.
        dtype: Of the buffers; None takes that of the first keys.

    Attributes:
        num_committed: Rows that survive the next `commit`, in tokens.
    """

    def __init__(self, *, num_layers: int, capacity: int, dtype: torch.dtype | None = None) -> None:
        super().__init__(layers=[TreeCacheLayer(capacity, dtype) for _ in range(num_layers)])
        self.capacity = capacity
        self.num_committed = 0

    @property
    def num_tree_rows(self) -> int:
        """Rows of the last tree, not committed yet."""
        return int(max(layer.num_rows for layer in self.layers)) - self.num_committed

    def commit(self, path: Sequence[int]) -> None:
        """Keeps the rows of the path (indices into the last forward), drops the others.

        Raises:
            ValueError: If the path is not increasing or leaves the last forward.
        """
        path = list(path)
        is_increasing = path == sorted(set(path))
        if not path or not is_increasing or path[0] < 0 or path[-1] >= self.num_tree_rows:
            raise ValueError(
                f"path {path} must increase within the {self.num_tree_rows} rows of the last tree"
            )
        rows: dict[torch.device, Tensor] = {}  # One upload per device, not one per layer.
        for layer in self.layers:
            index = None
            if path[-1] >= len(path) and layer.is_initialized:
                device = layer.keys.device
                if device not in rows:
                    rows[device] = upload(np.array(path) + self.num_committed, device)
                index = rows[device]
            layer.keep(self.num_committed, len(path), index)
        self.num_committed += len(path)

    @contextmanager
    def written_at(self, rows: np.ndarray) -> Iterator[None]:
        """Within it, a forward writes its rows there and attends to the whole buffers.

        Raises:
            RuntimeError: If they leave the buffers.
        """
        if rows[-1] >= self.capacity:
            raise RuntimeError(f"cache of {self.capacity} rows asked to hold {rows[-1] + 1}")
        places: dict[torch.device, Tensor] = {}
        for layer in self.layers:
            device = layer.keys.device
            if device not in places:
                places[device] = upload(rows, device)
            layer.fixed_rows = places[device]
        try:
            yield
        finally:
            for layer in self.layers:
                layer.fixed_rows = None

    def note_rows(self, num_rows: int) -> None:
        """Counts the rows that a forward of fixed shape has written, without its padding."""
        for layer in self.layers:
            layer.num_rows = num_rows

    def truncate(self, num_rows: int) -> None:
        """Forgets the last tree, and the committed rows behind the first `num_rows`.

        Raises:
            ValueError: If there are fewer committed rows than that.
        """
        if not 0 <= num_rows <= self.num_committed:
            raise ValueError(f"num_rows must be in [0, {self.num_committed}], got {num_rows}")
        self.note_rows(num_rows)
        self.num_committed = num_rows

    def clear(self) -> None:
        """Forgets all rows; the buffers stay."""
        for layer in self.layers:
            layer.reset()
        self.num_committed = 0

    def check_integrity(self) -> None:
        """All layers hold the same number of rows, at least the committed ones.

        Raises:
            AssertionError: If they do not.
        """
        counts = {layer.num_rows for layer in self.layers}
        assert len(counts) == 1, f"layers hold different numbers of rows: {sorted(counts)}"
        assert self.num_committed <= counts.pop() <= self.capacity
