"""Faulty retrievers: whatever they propose, a lossless method must put out what vanilla does.

`FAULTS` maps a name to a rule, a function of (context, limit) that returns candidates; the rules
break one clause of the retriever's contract each (or none, where the trap is a legal answer).
`FaultyRetriever(rule=FAULTS["id_negative"])` plugs one into the decode loop:

    for name, rule in FAULTS.items():
        method = make_method(FaultyRetriever(rule=rule), tree_builder, verifier)
        assert generate(method, ...).output_ids == generate(vanilla, ...).output_ids

`Oracle` and `AlwaysWrong` know the target: they bound tau from both sides, and `predicted_tau` says
what it must be exactly. All of them expect the toy's EOS id, 0.

Writing a verifier or builder? Add it to the registry and tests/contract runs it against all this.
Writing a retriever? These stand in for it when you want to see what the loop does to its mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from methods.targets.toy import ToyTarget
from primitives.interfaces import Retriever
from primitives.types import Candidate, Context
from support.toy import greedy_continuation

EOS_ID = 0
Rule = Callable[[Context, int], list[Candidate]]


def nothing(context: Context, limit: int) -> list[Candidate]:
    """No candidate: legal, the step is a vanilla step."""
    return []


def only_pending(context: Context, limit: int) -> list[Candidate]:
    """A candidate that proposes nothing behind pending: legal, and useless."""
    return [Candidate(token_ids=(context.pending_id,))]


def nonsense(context: Context, limit: int) -> list[Candidate]:
    """Random tokens behind pending."""
    return [_behind_pending(context, _noise(context, 5, seed)) for seed in range(limit)]


def empty_candidate(context: Context, limit: int) -> list[Candidate]:
    """A candidate without tokens, before a valid one."""
    return [Candidate(token_ids=()), _behind_pending(context, _noise(context, 3))]


def id_negative(context: Context, limit: int) -> list[Candidate]:
    """An id below the vocabulary: as an index it would wrap around."""
    return [_behind_pending(context, (1, -1, 2))]


def id_at_vocab_size(context: Context, limit: int) -> list[Candidate]:
    """The first id above the vocabulary: a padding row of the LM head."""
    return [_behind_pending(context, (1, context.vocab_size, 2))]


def id_huge(context: Context, limit: int) -> list[Candidate]:
    """An id that no integer type of 64 bits holds."""
    return [_behind_pending(context, (1, 10**30, 2))]


def id_outside_first(context: Context, limit: int) -> list[Candidate]:
    """Candidates whose very first token is outside the vocabulary."""
    return [Candidate(token_ids=(bad, 1, 2)) for bad in (-1, context.vocab_size, 10**30)]


def eos_only(context: Context, limit: int) -> list[Candidate]:
    """EOS in place of pending, and nothing else."""
    return [Candidate(token_ids=(EOS_ID,)), Candidate(token_ids=(EOS_ID,) * 4)]


def eos_first(context: Context, limit: int) -> list[Candidate]:
    """EOS right behind pending, and tokens behind EOS."""
    return [_behind_pending(context, (EOS_ID, *_noise(context, 3)))]


def eos_middle(context: Context, limit: int) -> list[Candidate]:
    """EOS in the middle of every candidate."""
    return [
        _behind_pending(context, (*_noise(context, 2, seed), EOS_ID, *_noise(context, 2, seed)))
        for seed in range(limit)
    ]


def duplicates(context: Context, limit: int) -> list[Candidate]:
    """The same candidate `limit` times: siblings must be merged."""
    return [_behind_pending(context, _noise(context, 4))] * limit


def over_limit(context: Context, limit: int) -> list[Candidate]:
    """Three times as many candidates as asked for."""
    return nonsense(context, 3 * limit)


def too_long(context: Context, limit: int) -> list[Candidate]:
    """Candidates longer than any node budget and than what is left of the output budget."""
    return [_behind_pending(context, _noise(context, 200, seed)) for seed in range(limit)]


def pending_missing(context: Context, limit: int) -> list[Candidate]:
    """Candidates that start behind pending instead of at it: the classic off-by-one."""
    first = (context.pending_id + 1) % context.vocab_size
    return [Candidate(token_ids=(first, *_noise(context, 3, seed))) for seed in range(limit)]


def nan_scores(context: Context, limit: int) -> list[Candidate]:
    """Scores that cannot be ordered."""
    return [_behind_pending(context, _noise(context, 3, s), math.nan) for s in range(limit)]


def infinite_scores(context: Context, limit: int) -> list[Candidate]:
    """Infinite scores of both signs."""
    return [
        _behind_pending(context, _noise(context, 3, s), (-1) ** s * math.inf) for s in range(limit)
    ]


def rising_scores(context: Context, limit: int) -> list[Candidate]:
    """Worst candidate first."""
    return [_behind_pending(context, _noise(context, 3, s), float(s)) for s in range(limit)]


def every_next_token(context: Context, limit: int) -> list[Candidate]:
    """One candidate per token, so that some child always carries the right one."""
    return [_behind_pending(context, (token_id,)) for token_id in range(context.vocab_size)]


def everything_at_once(context: Context, limit: int) -> list[Candidate]:
    """A few candidates of every other rule, mixed."""
    candidates = [c for rule in FAULTS.values() if rule is not everything_at_once
                  for c in rule(context, 1)]  # fmt: skip
    return candidates[len(context.token_ids) % 3 :: 2]


FAULTS: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        nothing, only_pending, nonsense, empty_candidate, id_negative, id_at_vocab_size, id_huge,
        id_outside_first, eos_only, eos_first, eos_middle, duplicates, over_limit, too_long,
        pending_missing, nan_scores, infinite_scores, rising_scores, every_next_token,
        everything_at_once,
    )
}  # fmt: skip


@dataclass(kw_only=True)
class FaultyRetriever(Retriever):
    """Proposes by a rule.

    Attributes:
        rule: Called with (context, limit).
    """

    rule: Rule

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return self.rule(context, limit)


@dataclass(kw_only=True)
class Oracle(Retriever):
    """Proposes what the target will greedily emit: every draft is accepted in full.

    Attributes:
        target: The target model of the same decode loop.
        depth: Tokens behind pending; fewer if the continuation ends with EOS.
    """

    target: ToyTarget
    depth: int

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        ids = context.ids_with_pending.tolist()
        return [_behind_pending(context, greedy_continuation(self.target, ids, self.depth))]


@dataclass(kw_only=True)
class AlwaysWrong(Retriever):
    """Proposes the target's least probable tokens: greedy decoding accepts none of them.

    Attributes:
        target: The target model of the same decode loop.
        depth: Tokens behind pending.
    """

    target: ToyTarget
    depth: int

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        ids = context.ids_with_pending.tolist()
        for _ in range(self.depth):
            ids.append(int(self.target.logits(ids).argmin()))
        return [_behind_pending(context, tuple(ids[-self.depth :]))]


@dataclass(kw_only=True)
class SampledDrafts(Retriever):
    """Draws its drafts from a draft model, with the randomness handed in.

    Attributes:
        draft_model: Gives the distributions that travel with the tokens.
        random: Where the drafts are drawn from; the loop's own source in exact enumerations.
        depth: Tokens behind pending.
        num_drafts: Independent drafts per step, in the order in which they were drawn.
        falling_scores: Whether the score keeps the order of the draws; otherwise all scores tie.
    """

    proposal = "iid"

    draft_model: ToyTarget
    random: object
    depth: int = 1
    num_drafts: int = 1
    falling_scores: bool = True

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return [
            self._draw(context, float(-i * self.falling_scores)) for i in range(self.num_drafts)
        ]

    def _draw(self, context: Context, score: float) -> Candidate:
        ids = context.ids_with_pending.tolist()
        rows = [torch.zeros(context.vocab_size, dtype=torch.float64)]
        for _ in range(self.depth):
            rows.append(torch.softmax(self.draft_model.logits(ids), dim=-1))
            ids.append(self.random.categorical(rows[-1]))
        drawn = (context.pending_id, *ids[len(ids) - self.depth :])
        return Candidate(token_ids=drawn, score=score, draft_probs=torch.stack(rows))


def predicted_tau(num_output_tokens: int, depth: int) -> float:
    """Tau of an oracle: each step but the last gives its `depth` draft tokens and one more."""
    num_steps = math.ceil((num_output_tokens - 1) / (depth + 1))
    return (num_output_tokens - 1) / num_steps


def _behind_pending(context: Context, token_ids: tuple[int, ...], score: float = 0.0) -> Candidate:
    return Candidate(token_ids=(context.pending_id, *token_ids), score=score, source="fault")


def _noise(context: Context, num_tokens: int, seed: int = 0) -> tuple[int, ...]:
    """Tokens that are a function of the context's length and the seed."""
    rng = np.random.default_rng([seed, len(context.ids_with_pending)])
    return tuple(rng.integers(0, context.vocab_size, num_tokens).tolist())
