"""The walk that relaxed verifiers share: down all root-to-leaf paths at once, one depth at a time.

An exact match (the argmax of its parent's row) is kept by every rule. Whether a mismatch is kept is
asked of the rule, and only where all of its ancestors were kept; the rule may answer differently
for the paths that run through a node. The longest kept path wins; ties go to more exact matches,
then to the larger sum of log p, then to the path with the smaller leaf.

Node 0 is kept without asking. An alternative to it is a mismatch like any other, judged by the row
that node 0 was chosen from.

Cost: one argmax over [n, v]; per depth that is reached, one softmax over [r, v] for the r parents
of mismatches there; one over the parents of paths that tie. One transfer for the argmax and one per
softmax: asking for one number at a time would synchronise a GPU each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from primitives.structures.token_scores import (
    NUM_SCORES,
    TokenScores,
    are_top,
    entropies_of,
    log_softmax,
    score_table,
    scores_of,
)
from primitives.structures.top_tokens import top_logits
from primitives.types import ROOT_REASON, DraftTree, Verdict


@dataclass(frozen=True, kw_only=True, eq=False)
class Mismatches:
    """Draft tokens at one depth that no exact match keeps; one entry per path through them.

    Attributes:
        depth: Their depth, 0 for alternatives to node 0.
        nodes: Their indices in the tree.
        scores: Their scores.
        is_match: Row j tells along the whole path of entry j which nodes are exact matches (node 0
            counts as one); false behind the end of the path.
        path_lens: Nodes of each path.
        num_relaxed: Mismatches that were kept in a row right before each entry.
        walk: Answers what only some rules ask.
    """

    depth: int
    nodes: Int[np.ndarray, "m"]
    scores: TokenScores
    is_match: Bool[np.ndarray, "m l"]
    path_lens: Int[np.ndarray, "m"]
    num_relaxed: Int[np.ndarray, "m"]

    walk: RelaxedWalk

    def is_top(self, k: int) -> Bool[np.ndarray, "m"]:
        """Which tokens are among the k most probable ones; the smaller id wins a tie."""
        return self.walk.is_top(self.nodes, k)


Rule = Callable[[Mismatches], np.ndarray]
"""The reason to keep each mismatch, "" for those that are not kept."""


class RelaxedWalk:
    """The walk through one tree; what it learns about nodes and their laws is kept.

    Attributes:
        max_entropy: log of the vocabulary size, in nats.
    """

    def __init__(
        self, tree: DraftTree, last_logits: Float[Tensor, "v"], logits: Float[Tensor, "n v"]
    ) -> None:
        self._tree, self._last_logits, self._logits = tree, last_logits, logits
        # By parent, -1 first. The same as argmax, which is slower on CPUs.
        ids = [last_logits.max(dim=-1, keepdim=True).indices, logits.max(dim=-1).indices]
        self._argmax_ids = torch.cat(ids).cpu().numpy()
        at_parent = self._argmax_ids[tree.parents + 1]
        self._is_match = (tree.parents >= 0) & (tree.token_ids == at_parent)
        self._is_match[0] = True
        self.max_entropy = math.log(logits.shape[1])
        self._paths = _root_to_leaf_paths(tree)
        self._table = np.full((NUM_SCORES, tree.num_nodes), np.nan)
        self._entropies = np.full(tree.num_nodes + 1, np.nan)  # By parent, too.

    def verdict(self, rule: Rule) -> Verdict:
        """The best path whose mismatches the rule keeps, without bounds of regret."""
        reasons = self._walk(rule)
        chosen = self._best_path(reasons)
        words = [str(word) for word in reasons[chosen] if word]
        path = self._paths[chosen, : len(words)]
        relaxed = np.flatnonzero(~self._is_match[path])
        regrets = np.zeros(len(path))
        if len(relaxed):
            regrets[relaxed] = self.scores(path[relaxed]).regrets
        return Verdict(
            path=tuple(path.tolist()),
            next_id=int(self._argmax_ids[path[-1] + 1]),
            reasons=tuple(words),
            regrets=tuple(regrets.tolist()) if regrets.any() else (),
            num_exact=self._num_exact(),
        )

    def scores(self, nodes: Int[np.ndarray, "m"]) -> TokenScores:
        """Scores of nodes under the laws that they are judged by."""
        fresh = np.unique(nodes[np.isnan(self._table[0, nodes])])
        if len(fresh):
            parents = self._tree.parents[fresh]
            distinct, rows = np.unique(parents, return_inverse=True)
            table = score_table(self._rows(distinct), rows, self._tree.token_ids[fresh])
            self._table[:, fresh] = table
            self._entropies[parents + 1] = table[-1]
        argmax_ids = self._argmax_ids[self._tree.parents[nodes] + 1]
        return scores_of(self._table[:, nodes], argmax_ids, self.max_entropy)

    def is_top(self, nodes: Int[np.ndarray, "m"], k: int) -> Bool[np.ndarray, "m"]:
        """Which nodes carry one of the k most probable tokens of the law that judges them."""
        distinct, rows = np.unique(self._tree.parents[nodes], return_inverse=True)
        return are_top(self._rows(distinct), rows, self._tree.token_ids[nodes], k)

    def entropies(self, nodes: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        """Entropies in nats of the laws that nodes are judged by."""
        parents = self._tree.parents[nodes]
        fresh = np.unique(parents[np.isnan(self._entropies[parents + 1])])
        if len(fresh):
            log_probs = log_softmax(self._rows(fresh))
            self._entropies[fresh + 1] = entropies_of(log_probs).cpu().numpy()
        entropies: np.ndarray = np.clip(self._entropies[parents + 1], 0.0, self.max_entropy)
        return entropies

    def gaps(self, nodes: Int[np.ndarray, "m"], k: int) -> Float[np.ndarray, "m"]:
        """log p(1st) - log p(k-th) in nats of the laws that nodes are judged by.

        Where fewer than k tokens are possible the last of those counts.
        """
        best = top_logits(self.laws(nodes), k).double()
        worst = torch.where(best.isfinite(), best, best[:, :1]).amin(dim=-1)
        gaps: np.ndarray = (best[:, 0] - worst).cpu().numpy()
        return gaps

    def laws(self, nodes: Int[np.ndarray, "m"]) -> Float[Tensor, "m v"]:
        """The logits that each of `nodes` is judged by: those of its parent."""
        return self._rows(self._tree.parents[nodes])

    def _rows(self, parents: Int[np.ndarray, "r"]) -> Float[Tensor, "r v"]:
        """Logits behind each of `parents`; -1 stands for the last committed position."""
        rows = [self._last_logits if row < 0 else self._logits[row] for row in parents.tolist()]
        return torch.stack(rows)

    def _walk(self, rule: Rule) -> np.ndarray:
        """Per path and depth the reason to keep the node, "" from the first that is not kept."""
        is_node = self._paths >= 0
        is_match = is_node & self._is_match[self._paths]
        path_lens = is_node.sum(axis=1)
        reasons = np.full(self._paths.shape, "", dtype=object)
        is_alive = np.ones(len(self._paths), dtype=bool)
        num_relaxed = np.zeros(len(self._paths), dtype=np.int64)
        for depth, nodes in enumerate(self._paths.T):
            reasons[is_alive & is_match[:, depth], depth] = "em"
            asked = np.flatnonzero(is_alive & is_node[:, depth] & ~is_match[:, depth])
            if len(asked):
                scores = self.scores(nodes[asked])
                words = rule(
                    Mismatches(
                        depth=depth,
                        nodes=nodes[asked],
                        scores=scores,
                        is_match=is_match[asked],
                        path_lens=path_lens[asked],
                        num_relaxed=num_relaxed[asked],
                        walk=self,
                    )
                )
                reasons[asked, depth] = np.where(scores.is_possible, words, "")
            is_alive &= reasons[:, depth] != ""
            num_relaxed = np.where(is_match[:, depth], 0, num_relaxed + 1)
        reasons[self._paths == 0] = ROOT_REASON
        return reasons

    def _num_exact(self) -> int:
        """The longest run of exact matches that starts at node 0."""
        is_exact = (self._paths >= 0) & self._is_match[self._paths]
        return int(np.logical_and.accumulate(is_exact, axis=1).sum(axis=1).max())

    def _best_path(self, reasons: np.ndarray) -> int:
        """Longest; then most exact matches, then the largest sum of log p, then the first."""
        num_kept = (reasons != "").sum(axis=1)
        num_matches = ((reasons != "") & (self._paths >= 0) & self._is_match[self._paths]).sum(1)
        order = num_kept * (num_kept.max() + 1) + num_matches
        best = np.flatnonzero(order == order.max())
        kept = [self._paths[path, : num_kept[path]] for path in best]
        if len({tuple(nodes.tolist()) for nodes in kept}) == 1:
            return int(best[0])
        sums = [self.scores(nodes).log_probs.sum() for nodes in kept]
        return int(best[np.argmax(sums)])


def _root_to_leaf_paths(tree: DraftTree) -> Int[np.ndarray, "p l"]:
    """One row per leaf, in index order: the nodes from depth 0 down to it, padded with -1."""
    leaves = np.setdiff1d(np.arange(tree.num_nodes), tree.parents)
    paths = np.full((len(leaves), int(tree.depths.max()) + 1), -1, dtype=np.int64)
    for path, leaf in zip(paths, leaves.tolist(), strict=True):
        nodes = tree.path_to(leaf)
        path[: len(nodes)] = nodes
    return paths
