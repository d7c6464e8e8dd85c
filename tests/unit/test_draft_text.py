"""A draft model's cache beside a growing text, on a tiny model whose buffers cannot grow."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from methods.targets.base import TreeOutput
from methods.targets.huggingface import HuggingFaceTarget
from methods.targets.toy import ToyTarget
from primitives.structures import draft_text
from primitives.structures.draft_text import DraftingModel, DraftText
from primitives.types import DraftTree

VOCAB_SIZE = 40
#       0: 5
#  1: 6      2: 7
#  3: 8    4: 6  5: 9
#  6: 9
TREE = DraftTree.from_nodes([5, 6, 7, 8, 6, 9, 9], [-1, 0, 0, 1, 2, 2, 3])
PROMPT = [3, 4, 5, 6, 7]


@functools.cache
def tiny_model(attn_implementation: str) -> Any:
    torch.manual_seed(0)
    config = tf.LlamaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    model = tf.AutoModelForCausalLM.from_config(
        config, attn_implementation=attn_implementation, dtype=torch.float64
    ).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


class Counting(HuggingFaceTarget):
    """Notes how many rows each growth of a tree and each prefill forwarded."""

    def __init__(self, model: Any) -> None:
        self.grown: list[int] = []
        self.prefilled: list[int] = []
        super().__init__(model, vocab_size=VOCAB_SIZE, eos_ids=frozenset())
        self.grown.clear()  # The adapter has tried a tree.
        self.prefilled.clear()

    def extend_tree(self, tree: DraftTree) -> TreeOutput:
        before = self.cache.num_tree_rows
        out = super().extend_tree(tree)
        self.grown.append(tree.num_nodes - before)
        return out

    def prefill(self, token_ids: Sequence[int], **options: Any) -> Any:
        self.prefilled.append(len(token_ids))
        return super().prefill(token_ids, **options)


def tiny(attn_implementation: str = "sdpa") -> Counting:
    return Counting(tiny_model(attn_implementation))


@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("cuts", [(1, 2, 3, 4, 5, 6), (1, 4), (3,), (2, 6)], ids=str)
def test_a_tree_that_grows_equals_the_whole_tree(
    cuts: tuple[int, ...], attn_implementation: str
) -> None:
    target = tiny(attn_implementation)
    target.prefill(PROMPT, reserve=8, draft_rows=8)
    whole = target.forward_tree(TREE).logits.clone()
    target.truncate(len(PROMPT))
    rows = []
    for end in (*cuts, TREE.num_nodes):
        part = DraftTree.from_nodes(TREE.token_ids[:end].tolist(), TREE.parents[:end].tolist())
        rows.append(target.extend_tree(part).logits.clone())
    torch.testing.assert_close(torch.cat(rows), whole, rtol=0, atol=1e-12)
    target.commit([0, 1, 3])
    after = target.forward_tree(DraftTree.root_only(9)).logits[0]
    torch.testing.assert_close(after, whole[6], rtol=0, atol=1e-12)


def test_a_truncated_cache_equals_that_of_the_shorter_text() -> None:
    target = tiny()
    target.prefill([*PROMPT, 8, 9], reserve=8, draft_rows=8)
    target.forward_tree(TREE)
    target.truncate(len(PROMPT))
    assert target.num_committed == len(PROMPT)
    target.cache.check_integrity()
    rows = target.forward_tree(TREE).logits.clone()
    target.prefill(PROMPT, reserve=8, draft_rows=8)
    assert torch.equal(rows, target.forward_tree(TREE).logits)


@pytest.mark.parametrize("make", [tiny, lambda: ToyTarget(vocab_size=VOCAB_SIZE)])
def test_misuse_is_told(make: Any) -> None:
    model = make()
    assert isinstance(model, DraftingModel)
    model.prefill(PROMPT, reserve=8, draft_rows=8)
    model.extend_tree(TREE)
    with pytest.raises(ValueError, match="a tree of 7 nodes adds nothing to 7 rows"):
        model.extend_tree(TREE)
    for num_rows in (-1, 6):
        with pytest.raises(ValueError, match=rf"num_rows must be in \[0, 5\], got {num_rows}"):
            model.truncate(num_rows)


def test_the_toy_tells_a_tree_that_does_not_continue_the_last_one() -> None:
    toy = ToyTarget(vocab_size=VOCAB_SIZE)
    toy.prefill(PROMPT, reserve=8)
    toy.extend_tree(DraftTree.from_nodes([5, 6], [-1, 0]))
    with pytest.raises(ValueError, match="extends the last one has other token_ids"):
        toy.extend_tree(DraftTree.from_nodes([5, 7, 8], [-1, 0, 1]))
    with pytest.raises(ValueError, match="extends the last one has other parents"):
        toy.extend_tree(DraftTree.from_nodes([5, 6, 8], [-1, -1, 1]))


def array(ids: Sequence[int]) -> np.ndarray:
    return np.array(ids, dtype=np.int64)


def logits_behind(ids: Sequence[int]) -> torch.Tensor:
    """Of the tiny model, with nothing cached."""
    return tiny_model("sdpa")(torch.tensor([list(ids)])).logits[0, -1].detach()


def check_draft(text: DraftText, ids: list[int], draft: list[int]) -> None:
    """Follows the text, whose last id is pending, and grows a chain; all logits must be right."""
    text.follow(array(ids[:-1]), len(draft))
    text.check_integrity()
    row, logits = text.start(array(ids))
    torch.testing.assert_close(logits, logits_behind(ids), rtol=0, atol=1e-12)
    for place, token_id in enumerate(draft):
        (row,), rows = text.grow([token_id], [row])
        expected = logits_behind([*ids, *draft[: place + 1]])
        torch.testing.assert_close(rows[0], expected, rtol=0, atol=1e-12)


def test_rows_of_accepted_drafts_are_kept() -> None:
    model = tiny()
    text = DraftText(model)
    check_draft(text, [1, 2, 3, 4], [5, 6, 7])  # 4 is pending.
    assert (model.prefilled, model.grown) == ([3], [1, 1, 1, 1])
    check_draft(text, [1, 2, 3, 4, 5, 6, 9], [8])  # 5 and 6 were kept, 9 is new.
    assert (model.prefilled, model.grown[4:]) == ([3], [1, 1])
    check_draft(text, [1, 2, 3, 4, 5, 6, 9, 8, 2, 3], [])  # 2 was not drafted.
    assert (model.prefilled, model.grown[6:]) == ([3], [2])
    check_draft(text, [1, 2, 3, 4, 5, 6, 9, 8, 2, 3], [1])  # Asked twice.
    assert (model.prefilled, model.grown[7:]) == ([3], [1, 1])


def test_any_other_text_is_followed() -> None:
    model = tiny()
    text = DraftText(model)
    check_draft(text, [1, 2, 3, 4], [5, 6, 7])
    check_draft(text, [1, 2, 9, 4, 5], [5, 6])
    assert model.prefilled == [3]  # Two rows were shared.
    check_draft(text, [7, 8], [1])
    check_draft(text, [7, 8, 1, 2, 3, 4, 5], [1])
    text.clear()
    check_draft(text, [7, 8], [1, 2])
    assert model.prefilled == [3, 1, 1]


def test_a_text_that_outgrows_its_buffers_is_forwarded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft_text, "MIN_RESERVE", 4)
    monkeypatch.setattr("methods.targets.huggingface.CAPACITY_STEP", 1)
    model = tiny()
    text = DraftText(model)
    ids = [1, 2, 3]
    for step in range(20):
        check_draft(text, ids, [7, 8, 9])
        ids += [7, 8, step][: 1 + step % 3]
    # There was room for 2 + 4 ids, 8 + 8, 17 + 17, and then for the context of 64.
    assert model.prefilled == [2, 8, 17, 35]


def test_more_draft_tokens_than_before_find_room() -> None:
    model = tiny()
    text = DraftText(model)
    for draft in ([4], [4, 5], [4, 5, 6]):
        check_draft(text, [1, 2, 3], draft)
    assert model.prefilled == [2, 2]


def test_positions_end_with_the_context() -> None:
    text = DraftText(ToyTarget(vocab_size=8, max_context=10))
    assert text.num_positions(array(range(5))) == 6
    assert text.num_positions(array(range(8)) % 8) == 3
    # Pending at the last position: what follows it is never forwarded.
    assert text.num_positions(array([1] * 10)) == 1
    assert text.num_positions(array([1] * 11)) == 0
    assert text.num_positions(array([1] * 15)) == 0
    assert DraftText(ToyTarget(vocab_size=8)).num_positions(array([1] * 15)) is None
