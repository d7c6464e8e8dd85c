"""Checks that every retriever passes."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import numpy as np

from contract.components import make, only_if, searched_texts
from primitives.interfaces import Need, Retriever
from primitives.types import Candidate, Context
from support.scenes import VOCAB_SIZE, Scene, ask, describe, play, record_scene

SEEDS = range(12)
LIMITS = (1, 2, 8)
BOUND_FIELDS = ("min_ngram", "max_ngram")


def needs_of(cls: type[Retriever]) -> frozenset[Need]:
    """What a retriever with its defaults must be given."""
    return cls().needs


def check_short_contexts(cls: type[Retriever]) -> None:
    """Nothing committed, or one token: no error, and no match within the text."""
    for ids in ([], [2], [2, 4]):
        retriever, context = make(cls), _context(ids, cls)
        retriever.begin(context)
        candidates = ask(retriever, context, 4)
        _assert_well_formed(candidates, context, 4, cls)
        if cls.is_exact and retriever.wanted_datastore is None:
            assert not candidates


def check_propose_is_readonly(cls: type[Retriever]) -> None:
    for scene in _scenes(cls):
        asked, silent = make(cls), make(cls)
        for retriever in (asked, silent):
            retriever.begin(scene.contexts[0])
        for context, outcome in zip(scene.contexts[:-1], scene.outcomes, strict=True):
            first = describe(ask(asked, context, 4))
            assert describe(ask(asked, context, 4)) == first
            asked.observe(outcome)
            silent.observe(outcome)
        last = scene.contexts[-1]
        assert describe(ask(asked, last, 4)) == describe(ask(silent, last, 4))


def check_candidates_are_well_formed(cls: type[Retriever]) -> None:
    for limit in LIMITS:
        for retriever, context in _moments(cls):
            _assert_well_formed(ask(retriever, context, limit), context, limit, cls)


def check_some_context_has_candidates(cls: type[Retriever]) -> None:
    """A retriever that never proposes anything would pass every other check."""
    assert any(ask(retriever, context, 4) for retriever, context in _moments(cls))


def check_distributions_travel_with_sampled_drafts(cls: type[Retriever]) -> None:
    for retriever, context in _moments(cls):
        for candidate in ask(retriever, context, 4):
            if cls.proposal == "point_mass":
                assert candidate.draft_probs is None
                continue
            assert candidate.draft_probs is not None
            drawn = candidate.draft_probs[1:]  # The row of pending is unused.
            assert drawn.shape == (len(candidate.token_ids) - 1, context.vocab_size)
            assert (drawn >= 0).all()
            assert all(abs(total - 1) < 1e-5 for total in drawn.sum(-1).tolist())


@only_if(lambda cls: cls.is_exact)
def check_candidates_follow_their_match(cls: type[Retriever]) -> None:
    """Quadratic oracle: the last `match_len` ids occur earlier, and the candidate behind them."""
    for retriever, context in _moments(cls):
        ids = context.ids_with_pending.tolist()
        searched = searched_texts(retriever, context.ids_with_pending)
        texts = [text.tolist() for text in searched]
        for candidate in ask(retriever, context, 8):
            match_len, draft = candidate.match_len, list(candidate.token_ids[1:])
            assert match_len >= 1
            assert draft
            assert any(
                text[end : end + len(draft)] == draft
                for text in texts
                for end in _ends(text, ids, match_len)
            ), f"{draft} never follows {ids[-match_len:]}"


@only_if(lambda cls: cls.is_exact)
def check_longest_match_comes_first(cls: type[Retriever]) -> None:
    """The first candidate has the longest match that there is, within the configured bounds."""
    for retriever, context in _moments(cls):
        ids = context.ids_with_pending.tolist()
        searched = searched_texts(retriever, context.ids_with_pending)
        texts = [text.tolist() for text in searched]
        low, high = (getattr(retriever, field, None) for field in BOUND_FIELDS)
        lengths = range(min(high or len(ids), len(ids)), (low or 1) - 1, -1)
        longest = next((n for n in lengths if any(any(_ends(t, ids, n)) for t in texts)), None)
        candidates = ask(retriever, context, 8)
        assert longest == (candidates[0].match_len if candidates else None)


def check_observing_in_one_batch_or_singly_is_the_same(cls: type[Retriever]) -> None:
    for seed in SEEDS:
        batches, singles = (
            record_scene(seed, needs_of(cls), one_by_one=one_by_one, has_rejected=False)
            for one_by_one in (False, True)
        )
        answers = {
            len(context.ids_with_pending): answer
            for context, answer in zip(singles.contexts, play(make(cls), singles), strict=True)
        }
        for context, answer in zip(batches.contexts, play(make(cls), batches), strict=True):
            assert answer == answers[len(context.ids_with_pending)]


def check_begin_forgets_the_previous_prompt(cls: type[Retriever]) -> None:
    """For a retriever that learns across requests, `reset` does."""
    first, second = (record_scene(seed, needs_of(cls)) for seed in (4, 5))
    for other, scene in ((first, second), (second, first)):
        used = make(cls)
        play(used, other)
        if cls.is_cross_request:
            used.reset()
        assert play(used, scene) == play(make(cls), scene)


@only_if(lambda cls: "node_top_ids" not in needs_of(cls))  # Which is to learn from them.
def check_rejected_drafts_leave_no_trace(cls: type[Retriever]) -> None:
    for seed in SEEDS:
        told, untold = (
            record_scene(seed, needs_of(cls), has_rejected=has_rejected)
            for has_rejected in (True, False)
        )
        assert play(make(cls), told) == play(make(cls), untold)


@only_if(lambda cls: hasattr(cls, "check_integrity"))
def check_integrity_holds_after_every_operation(cls: type[Retriever]) -> None:
    retriever = make(cls)
    for scene in _scenes(cls):
        retriever.begin(scene.contexts[0])
        retriever.check_integrity()
        for context, outcome in zip(scene.contexts[:-1], scene.outcomes, strict=True):
            ask(retriever, context, 4)
            retriever.observe(outcome)
            retriever.check_integrity()
        copy.deepcopy(retriever).check_integrity()
    retriever.reset()
    retriever.check_integrity()


def _assert_well_formed(
    candidates: list[Candidate], context: Context, limit: int, cls: type[Retriever]
) -> None:
    assert len(candidates) <= limit
    scores = [candidate.score for candidate in candidates]
    assert all(math.isfinite(score) for score in scores)
    assert scores == sorted(scores, reverse=True)
    prefix_probs: dict[tuple[int, ...], float] = {}
    for candidate in candidates:
        assert candidate.token_ids, "an empty candidate"
        assert len(candidate.token_probs) in (0, len(candidate.token_ids))
        for place, prob in enumerate(candidate.token_probs):
            assert 0 <= prob <= 1
            prefix = candidate.token_ids[: place + 1]
            assert prefix_probs.setdefault(prefix, prob) == prob
        assert all(0 <= token_id < context.vocab_size for token_id in candidate.token_ids)
        assert 0 <= candidate.match_len <= len(context.ids_with_pending)
        if not cls().proposes_alternatives:
            assert candidate.token_ids[0] == context.pending_id


def _scenes(cls: type[Retriever]) -> list[Scene]:
    return [record_scene(seed, needs_of(cls)) for seed in SEEDS]


def _moments(cls: type[Retriever]) -> Iterator[tuple[Retriever, Context]]:
    """A retriever before each step of each scene, with what it may read then."""
    for scene in _scenes(cls):
        retriever = make(cls)
        retriever.begin(scene.contexts[0])
        yield retriever, scene.contexts[0]
        for outcome, context in zip(scene.outcomes, scene.contexts[1:], strict=True):
            retriever.observe(outcome)
            yield retriever, context


def _context(ids: list[int], cls: type[Retriever]) -> Context:
    """Committed ids, all of them prompt, and a pending id that does not occur in them."""
    scene = record_scene(1, needs_of(cls))
    with_pending = np.array([*ids, 1], dtype=np.int64)
    with_pending.flags.writeable = False
    hidden, layer = scene.contexts[0].prompt_hidden, scene.contexts[0].prompt_layer_hidden
    return Context(
        ids_with_pending=with_pending,
        num_prompt_tokens=len(ids),
        vocab_size=VOCAB_SIZE,
        last_logits=scene.contexts[0].last_logits,
        last_hidden=scene.contexts[0].last_hidden,
        prompt_hidden=None if hidden is None else hidden[: len(ids)],
        prompt_layer_hidden=None if layer is None else layer[: len(ids)],
        reference_ids=(1, 2, 3) if "reference" in needs_of(cls) else None,
    )


def _ends(text: list[int], ids: list[int], match_len: int) -> Iterator[int]:
    """Ends in `text`, with a token behind them, of occurrences of the last `match_len` ids."""
    query = ids[-match_len:]
    return (end for end in range(match_len, len(text)) if text[end - match_len : end] == query)
