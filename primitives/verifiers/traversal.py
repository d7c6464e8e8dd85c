"""Traversal verification: whole paths are accepted or refused, from the leaves up.

Every node has an acceptance rate a: 1 for node 0, and for a child x of u

    a(x) = min(a(u) * p(x) / q(x), 1)

with p the target's law at u and q what x was drawn from. The first leaf, depth first, is accepted
with its rate, together with the whole path to it, and the next token is drawn from the p of the
leaf. If it is refused it is deleted, and at its parent u

    r = max(a(u) * p - q, 0), S = sum(r); p <- r / S, a(u) <- S / (S + 1 - a(u))

while q loses x and is renormalised. A parent without children is a leaf itself; node 0 always
passes. A token that a test from the root down would refuse can so be kept for what follows it.

Source: Weng et al. 2025 (NeurIPS, arXiv 2505.12398, algorithm 1). On a chain this is block
verification (Sun et al. 2024, arXiv 2403.10444).
Cost: one softmax per visited node, at least those of the first path; two passes over the vocabulary
per visited child.
Deviations: point masses are sampled and matched, which has the same law and accepts as much. A
public re-implementation divides S by what is left of q's mass, by which node 0 may be refused; the
update above was checked by exact enumeration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from primitives.interfaces import Verifier
from primitives.random_source import RandomSource, target_law
from primitives.registry import VERIFIERS
from primitives.structures.speculative_sampling import draft_law, left_over, ratio
from primitives.structures.tree_walk import walk_exact_matches
from primitives.types import ALL_PROPOSALS, ROOT_REASON, DraftTree, Verdict


@VERIFIERS.register("traversal")
@dataclass(kw_only=True, frozen=True)
class Traversal(Verifier):
    """Accepts the first path, from the leaves up, that passes the test of its leaf."""

    is_lossless_sampling = True
    samples = True
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
        """Visits leaves depth first until one passes."""
        if tree.draft_probs is None:
            return walk_exact_matches(tree, lambda node: self.choose(logits[node], random))
        node, law = _Traversal(tree, logits, random).accepted()
        path = tree.path_to(node)
        reasons = (ROOT_REASON, *["em"] * (len(path) - 1))
        return Verdict(path=tuple(path), next_id=random.categorical(law), reasons=reasons)


@dataclass(kw_only=True, eq=False)
class _Open:
    """A node whose children are being visited.

    Attributes:
        node: Its number.
        rate: At which it is accepted with the path to it, once no child is left.
        law: The target's behind it, without what refused children stand for.
        children: Those not visited yet.
        rejected: Tokens of those that were refused.
    """

    node: int
    rate: float
    law: Float[Tensor, "v"]
    children: Iterator[int]
    rejected: list[int] = field(default_factory=list)


class _Traversal:
    """One pass over a tree that carries distributions."""

    def __init__(self, tree: DraftTree, logits: Float[Tensor, "n v"], random: RandomSource) -> None:
        self._tree, self._logits, self._random = tree, logits, random
        self._children = tree.children()

    def accepted(self) -> tuple[int, Float[Tensor, "v"]]:
        """The accepted node, and the law of what follows it."""
        above = [self._opened(0, 1.0)]
        # No recursion: a chain may be deeper than Python's stack.
        while True:
            here = above[-1]
            child = next(here.children, None)
            if child is None:
                if self._random.bernoulli(here.rate):  # Node 0 keeps the rate 1.
                    return here.node, here.law
                above.pop()
                self._refuse(above[-1], here.node)
                continue
            token_id = int(self._tree.token_ids[child])
            drawn_from = draft_law(self._tree, child, here.rejected)
            rate = min(here.rate * ratio(here.law, drawn_from, token_id), 1.0)
            if rate > 0:
                above.append(self._opened(child, rate))
            else:
                # The path holds a token that the target excludes: its nodes are all refused.
                self._refuse(here, child)

    def _opened(self, node: int, rate: float) -> _Open:
        law = target_law(self._logits[node])
        return _Open(node=node, rate=rate, law=law, children=iter(self._children[node]))

    def _refuse(self, parent: _Open, child: int) -> None:
        token_id = int(self._tree.token_ids[child])
        drawn_from = draft_law(self._tree, child, parent.rejected)
        left = left_over(parent.rate * parent.law, drawn_from, token_id)
        total = float(left.sum())
        if total > 0:
            parent.law = left / total
        parent.rate = total / (total + 1.0 - parent.rate) if parent.rate < 1 else 1.0
        parent.rejected.append(token_id)
