"""What of the candidates may enter a tree, and how much of them is the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from primitives.types import Candidate


def num_prefixes(candidates: Sequence[Candidate]) -> int:
    """Distinct prefixes: nodes of the prefix tree of all candidates."""
    root: dict[int, Any] = {}
    num = 0
    for candidate in candidates:
        node = root
        for token_id in candidate.token_ids:
            if token_id not in node:
                node[token_id] = {}
                num += 1
            node = node[token_id]
    return num


def usable_part(candidate: Candidate, vocab_size: int, eos_ids: frozenset[int]) -> Candidate | None:
    """The candidate up to its first EOS and before its first id outside the vocabulary."""
    for position, token_id in enumerate(candidate.token_ids):
        if not 0 <= token_id < vocab_size:
            return candidate.cut(position) if position else None
        if token_id in eos_ids:
            return candidate.cut(position + 1)
    return candidate if candidate.token_ids else None
