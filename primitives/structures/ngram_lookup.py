"""Where the last tokens of a text have occurred before.

Cost: O(s * ngram) vectorised comparisons.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int


def match_ends(ids: Int[np.ndarray, "s"], ngram: int) -> Int[np.ndarray, "m"]:
    """Ascending ends (exclusive) of earlier occurrences of the last `ngram` ids.

    An occurrence may overlap the end of the text; at least one id follows each. `ngram` must be
    at least 1 and less than the number of ids.
    """
    num_windows = len(ids) - ngram  # The window at the very end is the query itself.
    hits = np.ones(num_windows, dtype=bool)
    for offset in range(ngram):
        hits &= ids[offset : offset + num_windows] == ids[num_windows + offset]
    return np.flatnonzero(hits) + ngram
