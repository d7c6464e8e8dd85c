"""Texts of single tokens, and draft trees with them: what a person wants to see of a generation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.steps import StepTree
from methods.generation import StepRecord
from methods.targets.base import TextCodec


def token_text(codec: TextCodec, previous_id: int, token_id: int) -> str:
    """What a token adds behind another one.

    A token alone may decode to something else: a leading space is lost with some tokenizers, and
    half a character is no text at all until its other half follows.
    """
    before, both = codec.decode([previous_id]), codec.decode([previous_id, token_id])
    return both[len(before) :] if both.startswith(before) else both


def token_texts(codec: TextCodec, token_ids: Sequence[int], previous_id: int) -> tuple[str, ...]:
    """The text of each token of an answer.

    Args:
        codec: The target model's.
        token_ids: The answer.
        previous_id: The last id of the prompt.
    """
    return tuple(token_text(codec, p, t) for p, t in pairwise([previous_id, *token_ids]))


def step_trees(
    codec: TextCodec, records: Sequence[StepRecord], prompt_ids: Sequence[int]
) -> tuple[StepTree, ...]:
    """The draft trees of a generation, in the order of its steps."""
    trees, last_id = [], prompt_ids[-1]
    for record in records:
        trees.append(_step_tree(codec, record, last_id))
        last_id = int(record.tree.token_ids[record.path[-1]])
    return tuple(trees)


def _step_tree(codec: TextCodec, record: StepRecord, last_id: int) -> StepTree:
    ids = record.tree.token_ids.tolist()
    parents = record.tree.parents.tolist()
    before = [last_id if parent < 0 else ids[parent] for parent in parents]
    return StepTree(
        token_ids=tuple(ids),
        tokens=tuple(token_text(codec, p, t) for p, t in zip(before, ids, strict=True)),
        parents=tuple(parents),
        sources=tuple(record.tree.sources),
        path=tuple(map(int, record.path)),
    )
