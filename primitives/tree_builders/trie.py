"""Trie: candidates merged by their common prefixes, best candidate first.

Candidates are inserted in rank order, each token a node unless its prefix is there already, until
the budget is used up; so the best candidate is never cut short for the sake of a worse one.

Source: the prefix trees of REST (He et al. 2023, arXiv 2311.08252, section 3.3) and SpecInfer
(Miao et al. 2023, arXiv 2305.09781), without their selection rules.
Cost: O(total candidate length) per build.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from primitives.interfaces import TreeBuilder
from primitives.registry import TREE_BUILDERS
from primitives.types import Candidate, DraftTree, rank_candidates


@TREE_BUILDERS.register("trie")
@dataclass(kw_only=True, frozen=True)
class Trie(TreeBuilder):
    """Prefix tree of all candidates, in rank order."""

    is_monotone = True

    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        """Node 0 and up to `budget` nodes of the prefix tree."""
        nodes = _Nodes(pending_id)
        for candidate in rank_candidates(candidates):
            nodes.insert(candidate, budget)
        return nodes.to_tree()


class _Nodes:
    """A trie under construction; nodes are numbered in the order of insertion."""

    def __init__(self, pending_id: int) -> None:
        self.token_ids = [pending_id]
        self.parents = [-1]
        self.sources = [""]
        self.match_lens = [0]
        self.probs: list[Tensor | None] = [None]
        self.index = {(-1, pending_id): 0}

    def insert(self, candidate: Candidate, budget: int) -> None:
        parent = -1
        for position, token_id in enumerate(candidate.token_ids):
            node = self.index.get((parent, token_id))
            if node is None:
                node = len(self.token_ids)
                if node > budget:
                    return
                self.index[parent, token_id] = node
                self.token_ids.append(token_id)
                self.parents.append(parent)
                self.sources.append(candidate.source)
                self.match_lens.append(candidate.match_len)
                row = None if candidate.draft_probs is None else candidate.draft_probs[position]
                self.probs.append(row)
            parent = node

    def to_tree(self) -> DraftTree:
        return DraftTree.from_nodes(
            self.token_ids,
            self.parents,
            sources=self.sources,
            match_lens=self.match_lens,
            draft_probs=_stack(self.probs),
        )


def _stack(rows: list[Tensor | None]) -> Tensor | None:
    """The rows as one tensor (the unused row of node 0 is zero); None if no node has one."""
    known = [row for row in rows[1:] if row is not None]
    if not known:
        return None
    if len(known) < len(rows) - 1:
        raise ValueError("candidates with and without draft_probs cannot share a tree")
    return torch.stack([torch.zeros_like(known[0]), *known])
