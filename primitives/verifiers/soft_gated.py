"""Soft-gated evaluation: where the target is uncertain, a draft token need not be its argmax.

A node is kept if all of its ancestors are and

    G = em OR (ent AND (topk OR con))

    em    the token is the argmax
    ent   the normalised entropy H / ln V is larger than `gamma`
    topk  the token is one of the `k` most probable ones
    con   few mismatches around it: their share in a window of the path is at most `max_density`

A higher entropy opens the gate: uncertainty behind a relaxed token makes the next relaxed token
more likely, not less. `max_consecutive_relaxed` ends such runs. Exact are `gamma >= 1`, and `k = 1`
without con; no other `gamma` is.

Source: SENSE, "Soft-gated Evaluation", equations 15 (topk), 16 (con) and 17 (gate); gamma and k
are the published defaults.
Cost: one argmax over [n, v], one softmax per kept parent of a mismatch, O(v) per kept node for
the bounds.
Deviations: the window, its threshold, its edges and the rules for EOS are ours, for the source
does not state them. At depth 0, beside pending, con is off: `admit` decides before there are rows
to compare with. The bound of regret, log p(1st) - log p(k-th) where the gate is open, is relative
to the target on the relaxed text. It is the bound of topk; a token that is kept as con has none,
so its regret may exceed the entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from primitives.fields import check_range, check_words
from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk
from primitives.structures.token_scores import TokenScores, are_top, score_tokens
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict

WindowKind = Literal["centred", "causal", "forward"]
Edge = Literal["zero", "strict", "renorm"]
KINDS, EDGES = get_args(WindowKind), get_args(Edge)
MAX_WINDOW = 255
ROUNDING = 1e-9
"""A threshold may have been computed: 1 - 0.8 is a little less than 1/5, which is to pass."""


@VERIFIERS.register("soft_gated")
@dataclass(kw_only=True, frozen=True)
class SoftGated(Verifier):
    """Exact matches, and tokens that are probable or well surrounded where entropy is high.

    Attributes:
        gamma: The gate is open where H / ln V is larger; at least 0; from 1 on greedy decoding.
        k: Tokens that count as probable, at least 1; 1 leaves only con to be relaxed.
        use_con: Whether good surroundings excuse a mismatch.
        window: Positions of the path that are looked at, the mismatch included; in [1, 255], odd
            if `centred`.
        max_density: Largest share of mismatches in the window, in [0, 1]; below 1 / `window` the
            mismatch itself is too many.
        window_kind: Whether the window is `centred` on the mismatch, ends (`causal`) or starts
            (`forward`) with it.
        left_edge: Positions before depth 0 count as matches (`zero`), as mismatches (`strict`) or
            not at all (`renorm`).
        right_edge: The same for positions behind the leaf.
        eos_requires_em: Keep no mismatch that is an EOS or stands where the argmax is one.
        max_consecutive_relaxed: Most mismatches in a row, at least 1, counted within a step; None
            for no limit.
    """

    valid_proposals = ALL_PROPOSALS

    gamma: float = 0.05
    k: int = 3
    use_con: bool = True
    window: int = 5
    max_density: float = 0.2
    window_kind: WindowKind = "centred"
    left_edge: Edge = "zero"
    right_edge: Edge = "strict"
    eos_requires_em: bool = True
    max_consecutive_relaxed: int | None = None

    def __post_init__(self) -> None:
        check_words(self)
        check_range(self, "gamma", least=0)
        check_range(self, "k", least=1)
        check_range(self, "window", least=1, most=MAX_WINDOW)
        check_range(self, "max_density", least=0, most=1)
        if self.window_kind == "centred" and self.window % 2 == 0:
            raise ValueError(f"window must be odd if it is centred, got {self.window}")
        if self.max_consecutive_relaxed is not None:
            check_range(self, "max_consecutive_relaxed", least=1)

    def admit(
        self,
        last_logits: Float[Tensor, "v"],
        token_ids: Int[Tensor, "k"],
        eos_ids: frozenset[int] = frozenset(),
    ) -> Bool[Tensor, "k"]:
        """Those among the `k` most probable tokens, if the gate is open."""
        if not len(token_ids):
            return super().admit(last_logits, token_ids, eos_ids)
        ids = token_ids.cpu().numpy()
        law, rows = last_logits[None], np.zeros_like(ids)
        scores = score_tokens(law, rows, ids)
        is_kept = self._is_relaxable(scores, eos_ids) & scores.is_possible
        if is_kept.any():
            is_kept &= are_top(law, rows, ids, self.k)
        return torch.from_numpy(is_kept).to(token_ids.device)

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """The longest path that passes the gate."""
        walk = RelaxedWalk(tree, last_logits, logits)
        verdict = walk.verdict(lambda mismatches: self._reasons(mismatches, eos_ids))
        return replace(verdict, regret_bounds=self._bounds(walk, verdict.path))

    def _reasons(self, mismatches: Mismatches, eos_ids: frozenset[int]) -> np.ndarray:
        scores = mismatches.scores
        is_relaxable = self._is_relaxable(scores, eos_ids)
        if self.max_consecutive_relaxed is not None:
            is_relaxable &= mismatches.num_relaxed < self.max_consecutive_relaxed
        if not is_relaxable.any():
            return np.full(len(mismatches.nodes), "")
        words = np.where(mismatches.is_top(self.k), "topk", "")
        if self.use_con and mismatches.depth > 0:
            is_con = self._density(mismatches) <= self.max_density + ROUNDING
            words = np.where((words == "") & is_con, "con", words)
        return np.where(is_relaxable, words, "")

    def _is_relaxable(self, scores: TokenScores, eos_ids: frozenset[int]) -> Bool[np.ndarray, "m"]:
        is_open = self._is_open(scores.entropies, scores.max_entropy)
        return is_open & ~scores.involves(eos_ids) if self.eos_requires_em else is_open

    def _is_open(
        self, entropies: Float[np.ndarray, "m"], max_entropy: float
    ) -> Bool[np.ndarray, "m"]:
        return entropies > self.gamma * max_entropy

    def _density(self, mismatches: Mismatches) -> Float[np.ndarray, "m"]:
        """Share of mismatches in the window of each path at its mismatch."""
        start = {"centred": self.window // 2, "causal": self.window - 1, "forward": 0}
        positions = mismatches.depth - start[self.window_kind] + np.arange(self.window)
        max_len = mismatches.is_match.shape[1]
        is_left = np.broadcast_to(positions < 0, (len(mismatches.nodes), self.window))
        is_right = positions >= mismatches.path_lens[:, None]
        is_mismatch = ~mismatches.is_match[:, positions.clip(0, max_len - 1)]
        is_counted = np.ones_like(is_mismatch)
        for is_outside, edge in ((is_left, self.left_edge), (is_right, self.right_edge)):
            is_mismatch[is_outside] = edge == "strict"
            is_counted[is_outside] = edge != "renorm"
        num_mismatches = (is_mismatch & is_counted).sum(axis=1)
        return np.asarray(num_mismatches / is_counted.sum(axis=1))

    def _bounds(self, walk: RelaxedWalk, path: tuple[int, ...]) -> tuple[float, ...]:
        """Per node the most regret of a topk acceptance; 0 where the gate is closed.

        At node 0 it is 0 as well: that token was chosen before, by the argmax.
        """
        nodes = np.array(path)
        bounds = np.zeros(len(nodes))
        gated = np.flatnonzero(nodes != 0)
        if len(gated):
            gated = gated[self._is_open(walk.entropies(nodes[gated]), walk.max_entropy)]
        if len(gated):
            bounds[gated] = walk.gaps(nodes[gated], self.k)
        return tuple(bounds.tolist())
