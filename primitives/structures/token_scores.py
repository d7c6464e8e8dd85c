"""What relaxed rules know about tokens: log p, regret and entropy, each under the law of its place.

Cost: one softmax over [r, v] and one transfer per table of scores of tokens under r laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from primitives.structures.top_tokens import top_logits

NUM_SCORES = 4
"""Numbers that are kept per node: the array fields of `TokenScores` but `argmax_ids`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenScores:
    """What a rule may know about tokens, each under the law of its place.

    Attributes:
        token_ids: The tokens.
        argmax_ids: Most probable token of each place; the smaller id wins a tie.
        log_probs: log p of each token in nats; -inf if the law excludes it.
        regrets: log p of the argmax minus that of the token, in nats.
        entropies: Entropy of the law at each place in nats, at most `max_entropy`.
        max_entropy: log of the vocabulary size, in nats.
    """

    token_ids: Int[np.ndarray, "m"]
    argmax_ids: Int[np.ndarray, "m"]
    log_probs: Float[np.ndarray, "m"]
    regrets: Float[np.ndarray, "m"]
    entropies: Float[np.ndarray, "m"]
    max_entropy: float

    @property
    def is_possible(self) -> Bool[np.ndarray, "m"]:
        """Where the law does not exclude the token."""
        return self.log_probs > -np.inf

    def involves(self, ids: frozenset[int]) -> Bool[np.ndarray, "m"]:
        """Where the token or the argmax that it would replace is one of `ids`."""
        pairs = np.stack([self.token_ids, self.argmax_ids], axis=1)[:, :, None]
        found: np.ndarray = (pairs == np.array([*ids], dtype=np.int64)).any(axis=(1, 2))
        return found


def score_tokens(
    laws: Float[Tensor, "r v"], rows: Int[np.ndarray, "m"], token_ids: Int[np.ndarray, "m"]
) -> TokenScores:
    """Scores token j under the law in row `rows[j]` of `laws` (logits)."""
    argmax_ids = laws.argmax(dim=-1).cpu().numpy()[rows]
    table = score_table(laws, rows, token_ids)
    return scores_of(table, argmax_ids, math.log(laws.shape[1]))


def are_top(
    laws: Float[Tensor, "r v"], rows: Int[np.ndarray, "m"], token_ids: Int[np.ndarray, "m"], k: int
) -> Bool[np.ndarray, "m"]:
    """Whether token j is among the k most probable ones of row `rows[j]`; small ids win ties."""
    least = top_logits(laws, k)[:, -1]
    where, ids = (torch.from_numpy(index).to(laws.device) for index in (rows, token_ids))
    # Compared as logits: different logits may have the same rounded probability.
    difference = laws[where, ids].double() - least[where].double()
    sign: np.ndarray = difference.sign().cpu().numpy()
    is_top: np.ndarray = sign > 0
    for place in np.flatnonzero(sign == 0):  # The k-th itself, and what ties with it.
        law, token_id = laws[rows[place]], int(token_ids[place])
        is_before = (law > law[token_id]).sum() + (law[:token_id] == law[token_id]).sum()
        is_top[place] = int(is_before) < k
    return is_top


def score_table(
    laws: Float[Tensor, "r v"], rows: Int[np.ndarray, "m"], token_ids: Int[np.ndarray, "m"]
) -> Float[np.ndarray, "4 m"]:
    """The array fields of `TokenScores` but `argmax_ids`, as float64; one transfer."""
    log_probs = log_softmax(laws)
    where, ids = (torch.from_numpy(index).to(laws.device) for index in (rows, token_ids))
    columns = (
        ids,
        log_probs[where, ids],
        laws.amax(dim=-1)[where].double() - laws[where, ids].double(),
        entropies_of(log_probs)[where],
    )
    return torch.stack([column.double() for column in columns]).cpu().numpy()


def log_softmax(laws: Float[Tensor, "r v"]) -> Float[Tensor, "r v"]:
    """log p in nats, in float32 at least: entropies sum over the whole vocabulary."""
    return laws.log_softmax(dim=-1, dtype=None if laws.dtype == torch.float64 else torch.float32)


def entropies_of(log_probs: Float[Tensor, "r v"]) -> Float[Tensor, "r"]:
    """In nats, of rows of log p."""
    # Excluded tokens would be 0 times -inf: a finite number has the same effect.
    log_probs = log_probs.clamp_min(-1000.0)
    return -(log_probs.exp().mul_(log_probs)).sum(dim=-1)


def scores_of(
    table: Float[np.ndarray, "4 m"], argmax_ids: Int[np.ndarray, "m"], max_entropy: float
) -> TokenScores:
    """What a table of `score_table` says."""
    return TokenScores(
        token_ids=table[0].astype(np.int64),
        argmax_ids=argmax_ids,
        log_probs=table[1],
        regrets=table[2],
        # Rounding leaves the interval: a uniform law could exceed log V.
        entropies=table[3].clip(0.0, max_entropy),
        max_entropy=max_entropy,
    )
