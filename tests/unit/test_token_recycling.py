"""Token Recycling: the matrix and what is read from it, worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from primitives.retrievers.token_recycling import TokenRecycling
from primitives.types import Context, DraftTree, StepOutcome

EOS = 9


def context(*ids: int, prompt_top_ids: list[list[int]] | None = None) -> Context:
    return Context(
        ids_with_pending=np.array(ids),
        num_prompt_tokens=len(ids) - 1,
        vocab_size=10,
        eos_ids=frozenset({EOS}),
        prompt_top_ids=None if prompt_top_ids is None else np.array(prompt_top_ids),
    )


def outcome(token_ids: list[int], parents: list[int], top_ids: list[list[int]]) -> StepOutcome:
    tree = DraftTree.from_nodes(token_ids, parents)
    return StepOutcome(
        token_ids=tree.token_ids[:1],
        pending_id=None,
        tree=tree,
        path=(0,),
        node_top_ids=np.array(top_ids),
    )


def drafts(retriever: TokenRecycling, pending_id: int, limit: int = 80) -> list[tuple[int, ...]]:
    return [c.token_ids[1:] for c in retriever.propose(context(0, pending_id), limit)]


def recycler(**fields: Any) -> TokenRecycling:
    """One step has been seen: 1 with the draft 2 (kept by nobody), and what follows each."""
    template = [[0], [1], [0, 0], [1, 0], [0, 0, 0]]
    retriever = TokenRecycling(**{"num_successors": 2, "template": template, **fields})
    retriever.begin(context(0, 1))
    retriever.observe(outcome([1, 2], [-1, 0], [[2, 3], [1, 4]]))
    return retriever


def test_the_template_is_filled_level_by_level() -> None:
    """Ranks (0), (1), (0, 0), (1, 0), (0, 0, 0) behind 1: 2, 3, 2 1, nothing behind 3, 2 1 2."""
    assert drafts(recycler(), 1) == [(2,), (3,), (2, 1), (2, 1, 2)]
    assert drafts(recycler(), 2) == [(1,), (4,), (1, 2), (1, 2, 1)]
    assert drafts(recycler(), 1, limit=2) == [(2,), (3,)]
    candidates = recycler().propose(context(0, 1), 80)
    assert [c.score for c in candidates] == [0.0, -1.0, -2.0, -3.0]


def test_what_was_never_seen_drafts_nothing() -> None:
    assert drafts(recycler(), 0) == []
    assert drafts(recycler(), 5) == []


def test_the_last_node_of_a_token_decides_kept_or_not() -> None:
    retriever = recycler()
    retriever.observe(outcome([5, 1, 6, 1], [-1, 0, 0, 2], [[6, 7], [7, 8], [1, 2], [8, 5]]))
    assert drafts(retriever, 1)[:2] == [(8,), (5,)]
    assert drafts(retriever, 5)[:2] == [(6,), (7,)]


def test_the_deepest_node_of_a_token_decides() -> None:
    """Token 5 stands at depth 2 (node 2), and later in the tree at depth 1 (node 3)."""
    retriever = recycler()
    tops = [[2, 5], [5, 3], [6, 7], [8, 0]]
    retriever.observe(outcome([1, 2, 5, 5], [-1, 0, 1, 0], tops))
    assert drafts(retriever, 5)[:2] == [(6,), (7,)]


def test_the_matrix_outlives_prompts_until_reset() -> None:
    retriever = recycler()
    retriever.begin(context(7, 1))
    assert drafts(retriever, 1)
    retriever.reset()
    retriever.begin(context(7, 1))
    assert drafts(retriever, 1) == []


def test_nothing_is_drafted_behind_eos() -> None:
    retriever = recycler()
    retriever.observe(outcome([1, EOS], [-1, 0], [[EOS, 2], [3, 4]]))
    assert drafts(retriever, 1) == [(EOS,), (2,), (2, 1)]


def test_the_prefill_puts_its_top_tokens_first() -> None:
    """Token 1 stands at positions 0 and 2: the later one says 4, 3. Its row was 2, 3, 5."""
    retriever = TokenRecycling(num_successors=3, template=[[0], [1], [2]], learn_prompt=True)
    assert retriever.needs == {"node_top_ids", "prompt_top_ids"}
    retriever.begin(context(0, 1))
    retriever.observe(outcome([1], [-1], [[2, 3, 5]]))
    top_ids = [[8, 7], [6, 5], [4, 3]]
    retriever.begin(context(1, 2, 1, 0, prompt_top_ids=top_ids))
    assert drafts(retriever, 1) == [(4,), (3,), (2,)]
    assert drafts(retriever, 2) == [(6,), (5,)]
    retriever.begin(context(2, 0, prompt_top_ids=[[5, 8]]))
    assert drafts(retriever, 2) == [(5,), (8,), (6,)]


def test_small_vocabularies_have_fewer_successors() -> None:
    retriever = TokenRecycling()
    assert retriever.num_top_ids == 8
    retriever.begin(context(0, 1))
    retriever.observe(outcome([1], [-1], [[2, 3]]))
    assert drafts(retriever, 1) == [(2,), (3,)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_successors": 0}, r"num_successors must be in \[1, 64\], got 0"),
        ({"template": [[0, 0]]}, r"template must hold \[0\] before \[0, 0\]"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenRecycling(**fields)
