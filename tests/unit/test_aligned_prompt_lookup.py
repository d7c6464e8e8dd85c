"""Aligned prompt lookup on a hand-worked prompt and in the loop; the lookup behind it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from methods.targets.toy import ToyTarget
from primitives.registry import RETRIEVERS, TREE_BUILDERS
from primitives.types import SIBLING_SOURCE, Candidate, Context, DraftTree
from support.toy import generate, greedy_continuation, make_method, seeded_prompts

# Position       0  1  2  3  4  5 | 6 (output)
# Token          7  1  2  3  4  1 | 2 (pending)
# The last two tokens (1, 2) occur at 1-2; behind them stand 3, 4, 1, and then pending itself.
PROMPT, PENDING = [7, 1, 2, 3, 4, 1], 2
TOP_IDS = [
    [1, 9],  # Behind 0.
    [2, 9],  # Behind 1.
    [3, 8],  # Behind 2: the copied 3 is the argmax, hence aligned.
    [5, 6],  # Behind 3: the copied 4 is neither of them, both are siblings.
    [6, 1],  # Behind 4: the copied 1 is the second, so 6 alone is a sibling.
    [2, 0],  # Behind 5: the copied 2 (pending) is the argmax.
]


def propose(
    output: list[int], limit: int = 8, top_ids: Any = TOP_IDS, **fields: Any
) -> list[Candidate]:
    """Candidates behind the prompt and some output, the last of which is pending."""
    retriever = RETRIEVERS.create("aligned_prompt_lookup", **fields)
    for num_output in (1, len(output)):
        context = Context(
            ids_with_pending=np.array(PROMPT + output[:num_output]),
            num_prompt_tokens=len(PROMPT),
            vocab_size=10,
            prompt_top_ids=np.array(top_ids) if num_output == 1 else None,
        )
        if num_output == 1:
            retriever.begin(context)
    return retriever.propose(context, limit)


def test_siblings_stand_where_the_copied_token_was_not_the_argmax() -> None:
    spine, *siblings = propose([PENDING])
    assert spine.token_ids == (2, 3, 4, 1, 2)
    assert (spine.source, spine.match_len, spine.recency) == ("aligned_prompt_lookup", 2, 3)
    assert [sibling.token_ids for sibling in siblings] == [(2, 3, 5), (2, 3, 6), (2, 3, 4, 6)]
    assert {(sibling.source, sibling.match_len) for sibling in siblings} == {(SIBLING_SOURCE, 0)}


def test_scores_fall_strictly() -> None:
    scores = [candidate.score for candidate in propose([PENDING])]
    assert all(first > second for first, second in itertools.pairwise(scores))


@pytest.mark.parametrize("name", ["trie", "loose_trie"])
@pytest.mark.parametrize("budget", [4, 6, 20])
def test_tree_builders_serve_the_spine_first(name: str, budget: int) -> None:
    tree: DraftTree = TREE_BUILDERS.create(name).build(PENDING, propose([PENDING]), budget)
    spine = [2, 3, 4, 1, 2]
    assert tree.token_ids[:5].tolist() == spine
    assert tree.sources[1:5] == ("aligned_prompt_lookup",) * 4
    assert tree.sources[5:] == (SIBLING_SOURCE,) * min(3, budget - 4)


def test_fewer_siblings_or_none() -> None:
    assert [c.token_ids for c in propose([PENDING], num_siblings=1)[1:]] == [
        (2, 3, 5),
        (2, 3, 4, 6),
    ]
    assert len(propose([PENDING], num_siblings=0)) == 1
    assert len(propose([PENDING], num_tokens=1)) == 1
    assert [len(propose([PENDING], limit)) for limit in range(5)] == [0, 1, 2, 3, 4]


def test_the_targets_own_output_counts_as_aligned() -> None:
    # Text 7 1 2 3 4 1 2 9 1 2: the last match of (1, 2) ends at 7, behind the prompt.
    assert [c.token_ids for c in propose([2, 9, 1, 2])] == [(2, 9, 1, 2)]
    # The first one ends at 3: siblings for the prompt's 4 and 1, none for the output's 9.
    spine, *siblings = propose([2, 9, 1, 2], match="first")
    assert spine.token_ids == (2, 3, 4, 1, 2, 9, 1, 2)
    assert [sibling.token_ids for sibling in siblings] == [(2, 3, 5), (2, 3, 6), (2, 3, 4, 6)]


def test_row_of_the_last_prompt_token_speaks_of_the_first_output_token() -> None:
    # (4, 1) again at the end: the copy begins with the first output token, which was not the
    # argmax behind position 5 here.
    top_ids = [*TOP_IDS[:5], [8, 2]]
    spine, sibling = propose([2, 4, 1], top_ids=top_ids, num_tokens=1)
    assert (spine.token_ids, sibling.token_ids) == ((1, 2), (1, 8))


def test_no_match_no_candidates() -> None:
    assert propose([0]) == []


@pytest.mark.parametrize("num_siblings", [-1, 3])
def test_more_siblings_than_are_recorded_are_refused(num_siblings: int) -> None:
    message = rf"num_siblings must be in \[0, 2\], got {num_siblings}"
    with pytest.raises(ValueError, match=message):
        RETRIEVERS.create("aligned_prompt_lookup", num_siblings=num_siblings)


def test_siblings_reach_the_tree_and_are_accepted() -> None:
    """The loop hands over what the retriever needs, and the output stays greedy."""
    accepted: list[str] = []
    for prompt in seeded_prompts(16, vocab_size=6):
        target = ToyTarget(vocab_size=6, eos_id=None)
        method = make_method(
            RETRIEVERS.create("aligned_prompt_lookup"), TREE_BUILDERS.create("trie")
        )
        generation = generate(method, prompt, target=target)
        assert generation.output_ids == greedy_continuation(target, prompt, 24)
        accepted += [source for step in generation.steps for source in step.sources if source]
    assert {SIBLING_SOURCE, "aligned_prompt_lookup"} == set(accepted)
