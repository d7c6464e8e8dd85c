"""Greedy exact match: keep draft tokens for as long as they are the target's argmax.

Source: the deterministic case of speculative decoding (Leviathan et al. 2023, arXiv 2211.17192,
section 2; Stern et al. 2018, arXiv 1811.03115, section 3). Cost: one argmax over [n, v].
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.tree_walk import walk_exact_matches
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict


@VERIFIERS.register("greedy")
@dataclass(kw_only=True, frozen=True)
class Greedy(Verifier):
    """Exact match with the argmax; ties go to the smallest id."""

    is_lossless_greedy = True
    valid_proposals = ALL_PROPOSALS

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """Walks along the argmax."""
        # One transfer for the whole tree: per-node .item() calls would synchronise a GPU each.
        choices = logits.argmax(dim=-1).tolist()
        return walk_exact_matches(tree, choices.__getitem__)
