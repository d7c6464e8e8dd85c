"""What a draft model's cache holds: the text so far, and one draft tree that grows behind it.

    rows committed          rows of the draft tree
    the cat sat             on - the - mat          forwarded while drafting
                                  \\- a
    the cat sat on the      mat                     after "on the" was accepted and "rug" is pending

Rows that the accepted path shares with the last draft are kept, so a step forwards only the last
accepted token (if the whole draft was kept), pending, and what it drafts.

Cost: per step O(s) comparisons of ids. The whole text is forwarded again when it has doubled (or
grown by `MIN_RESERVE`), which is when the buffers have to; that adds less than one forward of each
token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from primitives.types import DraftTree

MIN_RESERVE = 256
"""Positions behind the text that buffers are made for, at least."""


@runtime_checkable
class DraftingModel(Protocol):
    """A target model whose last tree may grow, and whose cache can be cut back.

    Attributes:
        vocab_size: Columns of its logits.
        max_context: Most positions, in tokens; None if unlimited.
        num_committed: Rows in the cache besides those of the last tree, in tokens.
    """

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_context(self) -> int | None: ...
    @property
    def num_committed(self) -> int: ...

    def reset(self) -> None:
        """Empties the cache."""

    def prefill(self, token_ids: Sequence[int], *, reserve: int, draft_rows: int = 0) -> Any:
        """Forwards and commits a text into an empty cache."""

    def extend_tree(self, tree: DraftTree) -> Any:
        """Forwards the nodes that `tree` has behind those of the last tree, its beginning.

        Returns:
            An object with `logits`, whose row i belongs to the i-th of these nodes.

        Raises:
            ValueError: If there are none.
        """

    def commit(self, path: Sequence[int]) -> None:
        """Keeps the rows of the path's nodes, drops the other rows of the last tree."""

    def truncate(self, num_rows: int) -> None:
        """Forgets the last tree, and the committed rows behind the first `num_rows`.

        Raises:
            ValueError: If there are fewer committed rows than that.
        """


class DraftText:
    """Keeps a draft model's cache in step with the text.

    Args:
        model: The draft model; nobody else uses its cache.
    """

    def __init__(self, model: DraftingModel) -> None:
        self._model = model
        self.clear()

    def clear(self) -> None:
        """Forgets the text."""
        self._model.reset()
        self._held: Int[np.ndarray, "h"] = np.empty(0, dtype=np.int64)
        self._capacity = self._num_nodes = 0
        self._token_ids: list[int] = []
        self._parents: list[int] = []

    def num_positions(self, ids: Int[np.ndarray, "s_plus_1"]) -> int | None:
        """How many draft tokens may follow the text; None for any number.

        The last of them is never forwarded.
        """
        limit = self._model.max_context
        return None if limit is None else max(limit - len(ids) + 1, 0)

    def follow(self, ids: Int[np.ndarray, "s"], num_nodes: int) -> None:
        """Makes the cache hold a beginning of the text, as long as is to be had without forwards.

        Args:
            ids: The text, at least one id; it is forwarded if the cache is empty or too small.
            num_nodes: Draft tokens that `grow` will be given, at most.

        Raises:
            ValueError: If an id is outside the draft model's vocabulary.
        """
        shared = self._num_shared(ids)
        if shared == 0 or len(ids) >= self._capacity or num_nodes > self._num_nodes:
            self._prefill(ids, 2 * num_nodes)
            return
        path = self._drafted(ids[shared:]) if shared == len(self._held) else []
        if path:
            self._model.commit(path)
        else:
            self._model.truncate(shared)
        self._held = ids[: shared + len(path)].copy()
        self._token_ids, self._parents = [], []

    def start(self, ids: Int[np.ndarray, "s_plus_1"]) -> tuple[int, Float[Tensor, "v"]]:
        """Forwards what the cache lacks of the text and pending; `follow` comes first.

        Returns:
            The row of pending, as a parent of what follows, and the logits behind it.
        """
        missing = ids[len(self._held) :].tolist()
        rows, logits = self.grow(missing, range(-1, len(missing) - 1))
        return rows[-1], logits[-1]

    def grow(
        self, token_ids: Sequence[int], parents: Sequence[int]
    ) -> tuple[list[int], Float[Tensor, "m v"]]:
        """Forwards draft tokens.

        Args:
            token_ids: At least one; children of the same parent are distinct.
            parents: The row of each token's parent.

        Returns:
            Their rows, and the logits behind them.
        """
        first = len(self._token_ids)
        self._token_ids += token_ids
        self._parents += parents
        tree = DraftTree.from_nodes(self._token_ids, self._parents)
        logits: Tensor = self._model.extend_tree(tree).logits
        return list(range(first, tree.num_nodes)), logits

    def check_integrity(self) -> None:
        """The model holds the text that it is thought to hold, with room for what follows.

        Raises:
            AssertionError: If it does not.
        """
        assert self._model.num_committed == len(self._held)
        assert len(self._token_ids) == len(self._parents)
        assert len(self._held) <= self._capacity

    def _num_shared(self, ids: Int[np.ndarray, "s"]) -> int:
        """Ids that the committed rows and the text begin with alike."""
        length = min(len(self._held), len(ids))
        differs = np.flatnonzero(self._held[:length] != ids[:length])
        return int(differs[0]) if len(differs) else length

    def _drafted(self, token_ids: Int[np.ndarray, "m"]) -> list[int]:
        """The nodes of the last draft tree that these tokens run through, from its first one."""
        children = {
            (parent, token): row
            for row, (parent, token) in enumerate(zip(self._parents, self._token_ids, strict=True))
        }
        path: list[int] = []
        for token in token_ids.tolist():
            row = children.get((path[-1] if path else -1, token))
            if row is None:
                break
            path.append(row)
        return path

    def _prefill(self, ids: Int[np.ndarray, "s"], num_nodes: int) -> None:
        self.clear()
        reserve, limit = max(MIN_RESERVE, len(ids)), self._model.max_context
        if limit is not None:
            reserve = min(reserve, limit - len(ids))
        self._model.prefill(ids.tolist(), reserve=reserve, draft_rows=num_nodes)
        self._held, self._capacity, self._num_nodes = ids.copy(), len(ids) + reserve, num_nodes
