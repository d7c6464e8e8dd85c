"""Distances between the input embeddings of tokens, each dimension in units of its spread.

Cost: one pass over [v, d] to build, [m, d] per question.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

LEAST_SPREAD = 1e-6
"""Added to the standard deviations: a dimension may be constant."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScaledEmbeddings:
    """Input embeddings with a scale per dimension; make them with `of`.

    Attributes:
        table: Row i is the embedding of token i, on any device and in any type.
        spreads: Standard deviation of each dimension over the rows, in float32 or better.
    """

    table: Float[Tensor, "v d"]
    spreads: Float[Tensor, "d"]

    @classmethod
    def of(cls, table: Float[Tensor, "v d"]) -> ScaledEmbeddings:
        """Measures the spreads; the table is not copied.

        Raises:
            ValueError: If the table is not two-dimensional or has less than two rows.
        """
        if table.ndim != 2 or len(table) < 2:
            raise ValueError(
                f"embeddings must be a table of two rows or more, got the shape {[*table.shape]}"
            )
        table = table.detach()
        wide = table if table.dtype == torch.float64 else table.float()
        return cls(table=table, spreads=wide.std(dim=0) + LEAST_SPREAD)

    def squared_distances(
        self, token_ids: Int[np.ndarray, "m"], other_ids: Int[np.ndarray, "m"]
    ) -> Float[np.ndarray, "m"]:
        """Per pair the sum over dimensions of ((E[a] - E[b]) / spread) squared."""
        rows, others = (
            self.table[torch.from_numpy(ids).to(self.table.device)].to(self.spreads.dtype)
            for ids in (token_ids, other_ids)
        )
        distances = ((rows - others) / self.spreads).double().square().sum(dim=-1)
        squared: np.ndarray = distances.cpu().numpy()
        return squared
