"""The retrievers that search by hidden states, on tables that can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from methods.datastores.hidden_states import build_hidden_store, open_hidden_store
from methods.targets.toy import LOGIT_SCALE, ToyTarget
from primitives.retrievers.hidden_state import HiddenState
from primitives.retrievers.semantic import Semantic
from primitives.structures.hidden_states import unit_rows
from primitives.types import Candidate, Context, DraftTree, StepOutcome
from support.toy import generate, greedy_continuation, make_method

PENDING = 8


class TableStore:
    """Keys by their angle in degrees, each with its continuation; states are directions."""

    def __init__(self, *entries: tuple[float, tuple[int, ...]]) -> None:
        self.angles = np.array([angle for angle, _ in entries])
        self.continuations = [token_ids for _, token_ids in entries]

    @property
    def dim(self) -> int:
        return 2

    def project(self, hidden: Tensor) -> np.ndarray:
        return unit_rows(hidden.float().numpy())

    def search(self, query: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
        cosines = directions(self.angles).astype(np.float32) @ query
        order = np.argsort(-cosines, kind="stable")[:num]
        return order, cosines[order]

    def continuation(self, position: int, length: int) -> tuple[int, ...]:
        return self.continuations[position][:length]


def directions(angles: Any) -> np.ndarray:
    radians = np.deg2rad(np.asarray(angles, dtype=np.float64))
    return np.stack([np.cos(radians), np.sin(radians)], axis=-1)


def context(ids: list[int], angles: list[float], *, num_prompt: int | None = None) -> Context:
    """A text whose last id is pending; the angles are those of the states at committed tokens."""
    with_pending = np.array(ids)
    with_pending.flags.writeable = False
    states = torch.from_numpy(3 * directions(angles))
    num_prompt = len(ids) - 1 if num_prompt is None else num_prompt
    return Context(
        ids_with_pending=with_pending,
        num_prompt_tokens=num_prompt,
        vocab_size=100,
        last_hidden=states[-1],
        prompt_hidden=states if num_prompt == len(ids) - 1 else None,
    )


def propose(
    retriever: HiddenState | Semantic,
    text: Context,
    *entries: tuple[float, tuple[int, ...]],
    limit: int = 16,
) -> list[Candidate]:
    if retriever.wanted_datastore is not None:
        retriever.attach(TableStore(*entries))
    retriever.begin(text)
    return retriever.propose(text, limit)


def tokens(candidates: list[Candidate]) -> list[tuple[int, ...]]:
    return [candidate.token_ids for candidate in candidates]


def semantic(*, static: bool = True, dynamic: bool = False, **fields: Any) -> Semantic:
    return Semantic(static=static, dynamic=dynamic, **fields)


#: Committed 5, pending 8, and the state at 5 points to 0 degrees.
SHORT = context([5, PENDING], [0.0])


# --- hidden_state ---


def test_only_neighbours_that_start_with_pending_are_drafts() -> None:
    table = (
        (10.0, (9, 1, 1)),  # The nearest, but it does not start with pending.
        (20.0, (8, 2, 2, 2)),
        (30.0, (8,)),  # Nothing behind pending.
        (40.0, (8, 3)),
    )
    candidates = propose(HiddenState(num_tokens=2), SHORT, *table)
    assert tokens(candidates) == [(8, 2, 2), (8, 3)]
    assert [c.score for c in candidates] == pytest.approx(
        [np.cos(np.deg2rad(20)), np.cos(np.deg2rad(40))], abs=1e-6
    )
    assert {c.source for c in candidates} == {"hidden_state"}
    assert propose(HiddenState(num_neighbors=1), SHORT, *table) == []
    assert tokens(propose(HiddenState(num_neighbors=2), SHORT, *table)) == [(8, 2, 2, 2)]
    assert tokens(propose(HiddenState(), SHORT, *table, limit=1)) == [(8, 2, 2, 2)]


def test_duplicates_count_once_and_keep_the_best_score() -> None:
    candidates = propose(
        HiddenState(num_tokens=1), SHORT, (40.0, (8, 1, 5)), (20.0, (8, 1, 6)), (30.0, (8, 2))
    )
    assert tokens(candidates) == [(8, 1), (8, 2)]
    assert [c.count for c in candidates] == [2, 1]
    assert candidates[0].score == pytest.approx(np.cos(np.deg2rad(20)), abs=1e-6)


def test_a_store_is_needed() -> None:
    with pytest.raises(RuntimeError, match="'hidden_state' has no datastore"):
        HiddenState().propose(SHORT, 4)
    with pytest.raises(RuntimeError, match="'semantic' has no datastore"):
        Semantic().begin(SHORT)
    assert semantic(static=False, dynamic=True).wanted_datastore is None
    with pytest.raises(TypeError, match="searches no datastore"):
        semantic(static=False, dynamic=True).attach(TableStore())


# --- semantic: the score ---


def test_agreeing_with_pending_comes_before_the_cosine() -> None:
    table = ((10.0, (9, 1)), (60.0, (8, 2)), (120.0, (8, 3)), (50.0, (7, 4)))
    candidates = propose(semantic(), SHORT, *table)
    assert tokens(candidates) == [(8, 2), (8, 3), (9, 1), (7, 4)]
    # alpha + beta cos 60, alpha + beta cos 120, beta cos 10, beta cos 50
    expected = [10.5, 9.5, np.cos(np.deg2rad(10)), np.cos(np.deg2rad(50))]
    assert [c.score for c in candidates] == pytest.approx(expected, abs=1e-6)
    # With alpha = 0 the cosine alone decides; beta scales it.
    candidates = propose(semantic(alpha=0.0, beta=2.0), SHORT, *table)
    assert tokens(candidates) == [(9, 1), (7, 4), (8, 2), (8, 3)]
    assert candidates[2].score == pytest.approx(1.0, abs=1e-6)


def test_candidates_are_cut_in_number_and_length() -> None:
    table = ((10.0, (8, 1, 1, 1)), (20.0, (8, 2, 2)), (30.0, (8, 3)))
    assert tokens(propose(semantic(num_tokens=3), SHORT, *table)) == [(8, 1, 1), (8, 2, 2), (8, 3)]
    assert len(propose(semantic(num_candidates=2), SHORT, *table)) == 2
    assert len(propose(semantic(), SHORT, *table, limit=1)) == 1
    assert len(propose(semantic(num_neighbors=1), SHORT, *table)) == 1


def test_pending_alone_is_no_candidate_but_an_alternative_is() -> None:
    assert tokens(propose(semantic(), SHORT, (10.0, (8,)), (20.0, (9,)))) == [(9,)]


def test_prefixes_are_dropped_on_request() -> None:
    table = ((30.0, (8, 1)), (10.0, (8, 1, 2)), (20.0, (8, 1, 2, 3)), (40.0, (9,)))
    every = [(8, 1, 2), (8, 1, 2, 3), (8, 1), (9,)]
    assert tokens(propose(semantic(), SHORT, *table)) == every
    # (8, 1) begins a better one; (8, 1, 2) begins a worse one only, and stays.
    dropped = propose(semantic(drop_prefixes=True), SHORT, *table)
    assert tokens(dropped) == [(8, 1, 2), (8, 1, 2, 3), (9,)]


# --- semantic: the text so far ---

#       position   0    1    2   pending
TEXT = context([5, 6, 7, PENDING], [30.0, 60.0, 0.0])
"""The state at position 2 is the query: 30 degrees from position 0, 60 from position 1."""


def test_the_newest_key_is_the_query_itself_and_no_hit() -> None:
    candidates = propose(semantic(static=False, dynamic=True), TEXT)
    assert tokens(candidates) == [(6, 7, 8), (7, 8)]
    assert [c.score for c in candidates] == pytest.approx([0.75**0.5, 0.5], abs=1e-6)
    assert {c.source for c in candidates} == {"dynamic"}
    assert propose(semantic(static=False, dynamic=True), SHORT) == []


def test_steps_are_learnt_and_begin_forgets_them() -> None:
    retriever = semantic(static=False, dynamic=True, num_tokens=3)
    assert tokens(propose(retriever, TEXT)) == [(6, 7, 8), (7, 8)]
    retriever.observe(step([PENDING, 3], [90.0, 10.0]))
    # Positions 3 and 4 are committed now; the newest (4, at 10 degrees) is the query.
    text = context([5, 6, 7, PENDING, 3, 4], [30.0, 60.0, 0.0, 90.0, 10.0], num_prompt=3)
    candidates = retriever.propose(text, 16)
    # Distances from 10 degrees: position 2: 10, 0: 20, 1: 50, 3: 80.
    assert tokens(candidates) == [(8, 3, 4), (6, 7, 8), (7, 8, 3), (3, 4)]
    retriever.check_integrity()
    assert tokens(propose(retriever, TEXT)) == [(6, 7, 8), (7, 8)]


def test_without_the_prompt_only_the_output_is_searched() -> None:
    retriever = semantic(static=False, dynamic=True, seed_prompt=False)
    assert propose(retriever, TEXT) == []
    retriever.observe(step([PENDING, 3], [90.0, 10.0]))
    text = context([5, 6, 7, PENDING, 3, 4], [30.0, 60.0, 0.0, 90.0, 10.0], num_prompt=3)
    assert tokens(retriever.propose(text, 16)) == [(3, 4)]


def test_repeating_the_last_token_can_be_drafted_from_the_entry_before_the_newest() -> None:
    # Position 0 is followed by 8 (position 1) and pending 8.
    text = context([5, PENDING, PENDING], [10.0, 0.0])
    (candidate,) = propose(semantic(static=False, dynamic=True), text)
    assert candidate.token_ids == (8, 8)
    assert candidate.score == pytest.approx(10 + np.cos(np.deg2rad(10)), abs=1e-6)


def test_raw_states_are_normalised_without_a_corpus() -> None:
    retriever = semantic(static=False, dynamic=True, alpha=0.0)
    assert all(abs(c.score) <= 1 + 1e-6 for c in propose(retriever, TEXT))


def test_ties_prefer_the_text_then_its_end_then_the_start_of_the_corpus() -> None:
    text = context([5, 6, 7, PENDING], [40.0, 40.0, 0.0])
    candidates = propose(Semantic(), text, (40.0, (1, 2)), (40.0, (3, 4)), (40.0, (6, 7, 8)))
    assert tokens(candidates) == [(7, 8), (6, 7, 8), (1, 2), (3, 4)]
    assert [c.source for c in candidates] == ["dynamic", "dynamic", "static", "static"]
    assert [c.count for c in candidates] == [1, 2, 1, 1]  # (6, 7, 8) is in the corpus, too.


def test_the_better_of_two_equal_continuations_counts() -> None:
    text = context([5, 6, 7, PENDING], [40.0, 80.0, 0.0])
    (first, *_) = propose(Semantic(), text, (10.0, (6, 7, 8)))
    assert (first.token_ids, first.source, first.count) == ((6, 7, 8), "static", 2)
    assert first.score == pytest.approx(np.cos(np.deg2rad(10)), abs=1e-6)


# --- semantic: the lexical fallback ---

#                   0  1  2  3  4  5  6  pending
REPEATS = context([1, 8, 2, 7, 8, 3, 7, PENDING], [90.0, 90, 90, 90, 90, 90, 0])
"""`7 8` has occurred once, followed by 3; `8` alone twice, followed by 3 and by 2."""


def test_fallback_copies_behind_the_longest_match() -> None:
    retriever = semantic(fallback="prompt_lookup", num_tokens=4)
    lexical, alternative = propose(retriever, REPEATS, (20.0, (9, 1)))
    assert lexical.token_ids == (8, 3, 7, 8)
    assert (lexical.source, lexical.match_len, lexical.score) == ("lexical", 2, 10.0)
    assert (alternative.token_ids, alternative.source) == ((9, 1), "static")
    candidates = propose(
        semantic(fallback="prompt_lookup", num_tokens=2, max_ngram=1), REPEATS, (20.0, (9, 1))
    )
    assert tokens(candidates) == [(8, 3), (8, 2), (9, 1)]  # Of equal matches the later one.


def test_fallback_waits_until_nothing_agrees_with_pending() -> None:
    agreeing = (100.0, (8, 5))
    for fallback in ("none", "prompt_lookup"):
        assert tokens(propose(semantic(fallback=fallback), REPEATS, agreeing)) == [(8, 5)]
    assert propose(semantic(), REPEATS) == []


# --- what is refused ---


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"static": False, "dynamic": False}, "static and dynamic must not both be false"),
        ({"num_tokens": 1}, r"num_tokens must be in \[2, 1024\], got 1"),
        ({"num_candidates": 0}, "num_candidates must be ≥ 1, got 0"),
        ({"alpha": -1.0}, "alpha must be ≥ 0 and finite, got -1.0"),
        ({"alpha": float("inf")}, "alpha must be ≥ 0 and finite, got inf"),
        ({"beta": 0.0}, "beta must be > 0 and finite, got 0.0"),
    ],
)
def test_bad_fields_of_semantic(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Semantic(**fields)


# --- with a real store, in the loop ---


def test_drafts_from_the_targets_own_answers_are_accepted(tmp_path: Path) -> None:
    """The corpus holds what the target says to the prompts: most steps find their continuation."""
    target = ToyTarget(vocab_size=20, eos_id=None)
    prompts = [[a, b, 3] for a in range(4) for b in range(4)]
    answers = [greedy_continuation(target, prompt, 24) for prompt in prompts]

    def documents() -> Any:
        for prompt, answer in zip(prompts, answers, strict=True):
            ids = [*prompt, *answer]
            positions = np.arange(len(prompt), len(ids))
            states = [target.logits(ids[:p]).numpy() / LOGIT_SCALE for p in positions]
            yield np.array(ids), np.array(states, dtype=np.float32), positions

    build_hidden_store(
        tmp_path / "s", documents(), vocab_size=20, tokenizer_hash="t", model={}, dim=16
    )
    store, _ = open_hidden_store(tmp_path / "s", vocab_size=20, hidden_size=20)
    retrievers = {
        "hidden_state": HiddenState(num_neighbors=10),
        "semantic": Semantic(num_neighbors=10),
        "dynamic": Semantic(static=False),
    }
    num_steps = {}
    for name, retriever in retrievers.items():
        if retriever.wanted_datastore is not None:
            retriever.attach(store)
        generations = [
            generate(make_method(retriever), prompt, target=target, max_new_tokens=24)
            for prompt in prompts
        ]
        assert [generation.output_ids for generation in generations] == answers
        num_steps[name] = sum(len(generation.steps) for generation in generations)
    assert num_steps["hidden_state"] < len(prompts) * 23 / 4
    assert num_steps["semantic"] < len(prompts) * 23 / 4
    assert num_steps["dynamic"] < len(prompts) * 23


def step(ids: list[int], angles: list[float]) -> StepOutcome:
    """A chain that was accepted whole."""
    return StepOutcome(
        token_ids=np.array(ids),
        pending_id=4,
        tree=DraftTree.from_nodes(ids, list(range(-1, len(ids) - 1))),
        path=tuple(range(len(ids))),
        hidden=torch.from_numpy(directions(angles)),
    )
