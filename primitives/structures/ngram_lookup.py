"""Where the last tokens of a text have occurred before, or in another text.

Cost: O(s) vectorised comparisons for n = 1, then only what is left of the hits per longer n.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int


def ngram_matches(
    ids: Int[np.ndarray, "s"], query: Int[np.ndarray, "q"], *, min_ngram: int = 1, max_ngram: int
) -> list[tuple[int, Int[np.ndarray, "m"]]]:
    """Occurrences of the last tokens of a query, by length.

    Args:
        ids: The text that is searched; the query itself, for what has occurred in it before.
        query: Its last n tokens are looked up.
        min_ngram: Shortest n, in tokens, at least 1.
        max_ngram: Longest n, in tokens.

    Returns:
        Pairs of n and the ascending ends (exclusive) of its occurrences, longest n first; only
        those with an occurrence. At least one id follows each; they may overlap each other.
    """
    found: list[tuple[int, np.ndarray]] = []
    if len(query) == 0:
        return found
    # The ends of longer matches are among those of shorter ones.
    ends = np.flatnonzero(ids[:-1] == query[-1]) + 1
    for ngram in range(1, min(max_ngram, len(query)) + 1):
        if ngram > 1:
            ends = ends[ends >= ngram]
            ends = ends[ids[ends - ngram] == query[-ngram]]
        if len(ends) == 0:
            break
        if ngram >= min_ngram:
            found.append((ngram, ends))
    return found[::-1]
