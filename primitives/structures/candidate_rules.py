"""Rules by which candidates of several sources become one list.

Scores of different sources have no common scale, and two sources may estimate the probability of
the same prefix differently; so a list that is made of several says how good a candidate is by its
place, and the first estimate of a prefix holds for all that share it.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from primitives.structures.top_tokens import top_tokens
from primitives.types import Candidate, Context


def in_order(candidates: Iterable[Candidate], limit: int) -> list[Candidate]:
    """The first `limit` distinct ones, scored 0, -1, -2, ...; equal prefixes estimated alike."""
    estimates: dict[tuple[int, ...], float] = {}
    ordered: dict[tuple[int, ...], Candidate] = {}
    for candidate in candidates:
        if len(ordered) == limit:
            break
        if candidate.token_ids not in ordered:
            ordered[candidate.token_ids] = replace(
                candidate, score=-float(len(ordered)), token_probs=_agreed(candidate, estimates)
            )
    return list(ordered.values())


def interleaved(lists: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """The best of each list, then the second of each, ..."""
    rounds = itertools.zip_longest(*lists)
    return [candidate for row in rounds for candidate in row if candidate is not None]


def first_step_probs(candidates: Iterable[Candidate], k: int) -> dict[int, float]:
    """The k tokens behind pending that the candidates' `token_probs` call the most probable.

    Returns:
        Their probabilities by token, the largest first.

    Raises:
        ValueError: If a candidate with a token behind pending carries no `token_probs`.
    """
    probs: dict[int, float] = {}
    for candidate in candidates:
        if len(candidate.token_ids) < 2:
            continue
        if not candidate.token_probs:
            raise ValueError(
                f"prune_by=first_part needs token_probs, candidates of {candidate.source!r} carry "
                "none: take prune_by=last_logits, or another first part"
            )
        probs.setdefault(candidate.token_ids[1], candidate.token_probs[1])
    return dict(sorted(probs.items(), key=lambda pair: -pair[1])[:k])


def guesses(logits: Float[Tensor, "v"] | None, k: int, pending_id: int) -> dict[int, float]:
    """The k most probable tokens but pending, which these logits gave, and their probabilities.

    Tokens that the logits exclude are none.
    """
    if logits is None:
        return {}
    token_ids = top_tokens(logits[None], k + 1)[0]
    probs = torch.softmax(logits.float(), dim=-1)[token_ids]
    pairs = zip(token_ids.tolist(), probs.tolist(), strict=True)
    likely = [(token, prob) for token, prob in pairs if prob > 0 and token != pending_id]
    return dict(likely[:k])


def pruned(
    candidates: Iterable[Candidate], pending_id: int, probs: Mapping[int, float]
) -> list[Candidate]:
    """Those whose token behind pending has a probability, by that probability times their count.

    Source: RASD (Quan et al. 2025, arXiv 2503.03434), retrieval pruning.
    """
    likely = [
        candidate
        for candidate in candidates
        if len(candidate.token_ids) > 1
        and candidate.token_ids[0] == pending_id
        and candidate.token_ids[1] in probs
    ]
    return sorted(likely, key=lambda c: -probs[c.token_ids[1]] * c.count)


def joined(first: Candidate, second: Candidate) -> Candidate:
    """What `first` proposes, and behind it what `second` proposes for its last token.

    Provenance is that of `second`, except for what the two say about the end of the text.
    """
    probs = (*first.token_probs, *second.token_probs[1:])
    token_ids = (*first.token_ids, *second.token_ids[1:])
    return replace(
        second,
        token_ids=token_ids,
        match_len=first.match_len,
        token_probs=probs if len(probs) == len(token_ids) else (),
    )


def at_leaf(leaf: Candidate, context: Context) -> Context:
    """The context as if the candidate were committed but for its last token, which is pending."""
    ids = np.concatenate([context.token_ids, np.array(leaf.token_ids, dtype=np.int64)])
    ids.flags.writeable = False
    return replace(context, ids_with_pending=ids, last_logits=None, last_hidden=None)


def expected_of_best(candidates: Sequence[Candidate]) -> float:
    """Tokens behind pending that are expected to be accepted of the first candidate.

    Where it carries no estimates its score counts; without candidates it is less than anything.

    Source: the score of SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975), section 4.
    """
    if not candidates:
        return -math.inf
    best = candidates[0]
    if not best.token_probs:
        return best.score
    return float(sum(itertools.accumulate(best.token_probs[1:], operator.mul)))


def _agreed(candidate: Candidate, estimates: dict[tuple[int, ...], float]) -> tuple[float, ...]:
    ids = candidate.token_ids
    return tuple(
        estimates.setdefault(ids[: place + 1], prob)
        for place, prob in enumerate(candidate.token_probs)
    )
