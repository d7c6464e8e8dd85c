"""Small trees and laws for relaxed verifiers, and a plain reading of rules that judge one token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.types import DraftTree, Verdict
from support.scenes import ScoredTree, scored_trees
from support.toy import RefusesToDraw

# Token i has rank i in each of them.
UNSURE = (0.4, 0.3, 0.2, 0.1)  # 1.280 nats.
SURE = (0.97, 0.01, 0.01, 0.01)  # 0.168 nats.
SQUARE = ((0.0, 0.0), (0.0, 2.0), (2.0, 0.0), (2.0, 2.0))
"""Embeddings whose spread is sqrt(4/3) per dimension: sides have the squared length 3."""


def rows(*laws: Sequence[float]) -> Tensor:
    """Probabilities -> logits."""
    return torch.tensor(laws, dtype=torch.float64).log()


def chain(*token_ids: int) -> DraftTree:
    """Node 0 with token 0, then the given tokens."""
    return DraftTree.from_nodes([0, *token_ids], range(-1, len(token_ids)))


def verify(
    name: str,
    tree: DraftTree,
    laws: Sequence[Sequence[float]] | None = None,
    *,
    logits: Tensor | None = None,
    eos_ids: frozenset[int] = frozenset(),
    random: RandomSource | None = None,
    embeddings: Sequence[Sequence[float]] = SQUARE,
    **fields: Any,
) -> Verdict:
    """What a verifier says; `laws` (or `logits`) per node, all `UNSURE` unless given."""
    if logits is None:
        logits = rows(*(laws or [UNSURE] * tree.num_nodes))
    verifier = VERIFIERS.create(name, **fields)
    if "embeddings" in verifier.needs:
        verifier.attach(embeddings=torch.tensor(embeddings, dtype=torch.float64))
    return verifier.verify(tree, rows(UNSURE)[0], logits, random or RefusesToDraw(), eos_ids)


def bank() -> list[ScoredTree]:
    """Random trees over eight tokens, with and without ties."""
    return [
        scored
        for seed in range(2)
        for has_ties in (False, True)
        for scored in scored_trees(seed, has_ties=has_ties)
    ]


def plain_path(scored: ScoredTree, passes: Callable[[np.ndarray, int], bool]) -> list[int]:
    """The path that a rule for single tokens keeps, read leaf by leaf.

    Args:
        scored: A tree with its logits.
        passes: Logits and a token that is not their argmax -> whether it is kept.
    """
    tree, logits = scored.tree, scored.logits.numpy()
    best: tuple[tuple[float, ...], list[int]] = ((), [])
    for order, leaf in enumerate(sorted({*range(tree.num_nodes)} - {*tree.parents.tolist()})):
        kept: list[int] = []
        matches, log_prob = 0, 0.0
        for node in tree.path_to(leaf):
            parent, token_id = int(tree.parents[node]), int(tree.token_ids[node])
            law = scored.last_logits.numpy() if parent < 0 else logits[parent]
            is_match = node == 0 or (parent >= 0 and int(law.argmax()) == token_id)
            if not is_match and (parent < 0 or not passes(law, token_id)):
                break
            kept.append(node)
            matches += is_match
            log_prob += law[token_id] - np.log(np.exp(law).sum())
        best = max(best, ((len(kept), matches, round(log_prob, 9), -order), kept))
    return best[1]
