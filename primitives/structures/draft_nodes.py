"""Draft nodes with counts, as candidates' paths.

Cost: O(number of nodes * depth).
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class DraftPath(NamedTuple):
    """From the first draft token down to a leaf.

    Attributes:
        token_ids: At least one id.
        token_probs: Estimated probability of each given those before it, in [0, 1].
        score: Sum of the probabilities of its prefixes: the expected number of accepted tokens.
        num_occurrences: Of the leaf, at least 1.
        recency: Where an occurrence of it starts in its source.
    """

    token_ids: tuple[int, ...]
    token_probs: tuple[float, ...]
    score: float
    num_occurrences: int
    recency: int


class DraftNodes(NamedTuple):
    """A draft tree below the pending token; a parent comes before its children.

    Attributes:
        score: Sum of the path probabilities of the nodes.
        match_len: Tokens of the context that the source agreed with; 0 without nodes.
        token_ids: Per node.
        parents: Per node, -1 below the pending token.
        probs: Per node its probability given its parent, and that of its path.
        counts: Per node its occurrences.
        ends: Per node, where an occurrence of it ends in its source.
    """

    score: float
    match_len: int
    token_ids: Int[np.ndarray, "n"]
    parents: Int[np.ndarray, "n"]
    probs: Float[np.ndarray, "n 2"]
    counts: Int[np.ndarray, "n"]
    ends: Int[np.ndarray, "n"]

    def paths(self, eos_ids: Set[int] = frozenset()) -> list[DraftPath]:
        """One path per leaf, by falling score; nothing stands behind an EOS.

        Ties go to the later occurrence, then to the smaller ids.
        """
        rows = zip(self.token_ids.tolist(), self.parents.tolist(), self.probs.tolist(), strict=True)
        counts, ends = self.counts.tolist(), self.ends.tolist()
        paths: dict[int, DraftPath] = {-1: DraftPath((), (), 0.0, 0, 0)}
        inner = {-1}
        for node, (token_id, parent, (prob, path_prob)) in enumerate(rows):
            above = paths.get(parent)
            if above is None or (above.token_ids and above.token_ids[-1] in eos_ids):
                continue
            inner.add(parent)
            paths[node] = DraftPath(
                token_ids=(*above.token_ids, token_id),
                token_probs=(*above.token_probs, prob),
                score=above.score + path_prob,
                num_occurrences=counts[node],
                recency=ends[node] - len(above.token_ids) - 1,
            )
        leaves = [path for node, path in paths.items() if node not in inner]
        return sorted(leaves, key=lambda path: (-path.score, -path.recency, path.token_ids))
