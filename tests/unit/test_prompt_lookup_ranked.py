"""PLD+ on a hand-worked text with states in the plane, and against its rule by brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from primitives.retrievers.prompt_lookup_ranked import PromptLookupRanked
from primitives.structures.growing_states import GrowingStates
from primitives.types import Candidate, Context, DraftTree, StepOutcome

# Position  0  1  2  3  4  5 | 6
IDS = [7, 3, 7, 4, 7, 8, 7]  # Pending is the last 7.
# The places are 2 and 4 (0 has nothing before it), judged by the states at 1 and 3 beside that
# at 5. The states at the places themselves would say otherwise.
ANGLES = [0, 20, 90, 60, 0, 0]


def states(angles: list[float]) -> Tensor:
    radians = torch.deg2rad(torch.tensor(angles, dtype=torch.float64))
    return 3 * torch.stack([radians.cos(), radians.sin()], dim=-1)


def context(ids: list[int], rows: Tensor | None = None, eos_ids: Any = ()) -> Context:
    with_pending = np.array(ids)
    with_pending.flags.writeable = False
    return Context(
        ids_with_pending=with_pending,
        num_prompt_tokens=len(ids) - 1,
        vocab_size=10,
        eos_ids=frozenset(eos_ids),
        prompt_layer_hidden=rows,
    )


def propose(
    ids: list[int], rows: Tensor, limit: int = 8, eos_ids: Any = (), **fields: Any
) -> list[Candidate]:
    retriever = PromptLookupRanked(**fields)
    retriever.begin(context(ids, rows))
    return retriever.propose(context(ids, eos_ids=eos_ids), limit)


def test_the_place_with_the_most_similar_state_before_it_is_copied() -> None:
    (candidate,) = propose(IDS, states(ANGLES))
    assert candidate.token_ids == (7, 4, 7, 8, 7)
    assert candidate.score == pytest.approx(math.cos(math.radians(20)))
    assert (candidate.match_len, candidate.recency) == (1, 3)
    assert candidate.source == "prompt_lookup_ranked"


def test_more_candidates_by_falling_cosine() -> None:
    candidates = propose(IDS, states(ANGLES), num_candidates=4)
    assert [c.token_ids for c in candidates] == [(7, 4, 7, 8, 7), (7, 8, 7)]
    assert candidates[1].score == pytest.approx(0.5)
    assert len(propose(IDS, states(ANGLES), num_candidates=4, limit=1)) == 1
    assert propose(IDS, states(ANGLES), limit=0) == []


def test_the_later_of_equally_similar_places_wins() -> None:
    (candidate,) = propose(IDS, states([0, 20, 90, 20, 0, 0]))
    assert candidate.token_ids == (7, 8, 7)


def test_equal_continuations_are_one_candidate() -> None:
    ids = [1, 7, 4, 2, 7, 4, 2, 7]
    candidates = propose(ids, states([10, 0, 0, 20, 0, 0, 0]), num_candidates=4, num_tokens=2)
    assert [(c.token_ids, c.recency) for c in candidates] == [((7, 4, 2), 2)]


def test_draft_is_cut_to_its_length_and_at_eos() -> None:
    assert propose(IDS, states(ANGLES), num_tokens=2)[0].token_ids == (7, 4, 7)
    assert propose(IDS, states(ANGLES), eos_ids=[8])[0].token_ids == (7, 4, 7, 8)


@pytest.mark.parametrize("ids", [[7], [7, 7], [7, 3, 4, 7], [1, 2, 3]])
def test_pending_that_is_new_or_stands_first_only_gives_no_draft(ids: list[int]) -> None:
    assert propose(ids, states([0.0] * (len(ids) - 1))) == []


def test_states_of_the_output_are_learnt() -> None:
    retriever = PromptLookupRanked()
    retriever.begin(context(IDS[:4], states(ANGLES[:3])))
    for start, end in ((3, 5), (5, 6)):
        outcome = StepOutcome(
            token_ids=np.array(IDS[start:end]),
            pending_id=IDS[end],
            tree=DraftTree.root_only(IDS[start]),
            path=(0,),
            layer_hidden=states(ANGLES[start:end]),
        )
        retriever.observe(outcome)
        retriever.check_integrity()
    assert retriever.propose(context(IDS), 8)[0].token_ids == (7, 4, 7, 8, 7)


def test_layer_is_what_the_loop_is_asked_for() -> None:
    assert PromptLookupRanked(layer=0.5).hidden_layer == 0.5
    assert round(PromptLookupRanked().hidden_layer * 32) == 11


def test_states_outgrow_their_first_rows() -> None:
    """Every degree of the circle, one at a time: the newest is 359."""
    kept = GrowingStates(states([0]).bfloat16())
    for angle in range(1, 360):
        kept.append(states([angle]))
    kept.check_integrity()
    assert len(kept) == 360
    cosines = kept.cosines(np.array([359, 299, 269, 0]))
    assert cosines == pytest.approx([1, 0.5, 0, math.cos(math.radians(1))], abs=1e-6)


def test_a_state_of_zeros_is_like_none() -> None:
    kept = GrowingStates(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    kept.check_integrity()
    assert kept.cosines(np.array([0, 1])) == pytest.approx([0, 1])


@given(st.lists(st.integers(0, 2), min_size=1, max_size=25), st.integers(0, 100))
def test_best_place_by_brute_force(ids: list[int], seed: int) -> None:
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(ids) - 1, 5)))
    last = len(ids) - 1
    places = [j for j in range(1, last) if ids[j] == ids[last]]
    cosines = [float(torch.cosine_similarity(rows[j - 1], rows[last - 1], dim=0)) for j in places]
    candidates = propose(ids, rows, num_tokens=4)
    assert bool(candidates) == bool(places)
    if places:
        best = places[int(np.argmax(cosines))]
        assert candidates[0].token_ids == tuple(ids[best : best + 5])
        assert candidates[0].score == pytest.approx(max(cosines), abs=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer": 0.0}, r"layer must be in \(0, 1\], got 0\.0"),
        ({"layer": 1.5}, r"layer must be in \(0, 1\], got 1\.5"),
        ({"num_tokens": 0}, r"num_tokens must be in \[1, 1024\], got 0"),
        ({"num_candidates": 0}, "num_candidates must be ≥ 1, got 0"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PromptLookupRanked(**fields)
