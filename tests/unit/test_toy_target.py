"""The toy target: forwards go prefix by prefix, commits follow paths, its law is as said."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from methods.targets.base import ContextOverflow, TargetModel, TextCodec
from methods.targets.toy import LOGIT_SCALE, ToyCodec, ToyTarget
from primitives.types import DraftTree

PROMPT = [3, 1, 4]
#   0: 5, 1: 6 (alternative), 2: 7 below 0, 3: 7 below 1
TREE = DraftTree.from_nodes([5, 6, 7, 7], [-1, -1, 0, 1])


@pytest.fixture
def target() -> ToyTarget:
    """A prefilled toy."""
    toy = ToyTarget(vocab_size=8)
    toy.prefill(PROMPT, reserve=16)
    return toy


def test_follows_the_protocols() -> None:
    assert isinstance(ToyTarget(), TargetModel)
    assert isinstance(ToyCodec(), TextCodec)


def test_prefill_gives_logits_and_hidden_states() -> None:
    toy = ToyTarget(vocab_size=8)
    out = toy.prefill(PROMPT, reserve=4, prompt_hidden=True)
    assert out.last_logits.dtype == torch.float64
    assert torch.equal(out.last_logits, toy.logits(PROMPT))
    assert torch.equal(out.last_hidden * LOGIT_SCALE, out.last_logits)
    assert torch.equal(out.prompt_hidden[1] * LOGIT_SCALE, toy.logits(PROMPT[:2]))
    assert toy.prefill(PROMPT, reserve=4).prompt_hidden is None


def test_each_node_sees_the_committed_ids_and_its_path(target: ToyTarget) -> None:
    out = target.forward_tree(TREE)
    for node, path in enumerate(([5], [6], [5, 7], [6, 7])):
        assert torch.equal(out.logits[node], target.logits(PROMPT + path))
        assert torch.equal(out.hidden[node] * LOGIT_SCALE, out.logits[node])
    assert target.num_committed == 3


def test_commit_keeps_the_path(target: ToyTarget) -> None:
    target.forward_tree(TREE)
    target.commit([1, 3])
    assert target.committed_ids == (3, 1, 4, 6, 7)
    root = target.forward_tree(DraftTree.root_only(2))
    assert torch.equal(root.logits[0], target.logits([*PROMPT, 6, 7, 2]))


@pytest.mark.parametrize("path", [[], [2], [0, 3], [0, 1]])
def test_commit_refuses_what_is_no_path(target: ToyTarget, path: list[int]) -> None:
    target.forward_tree(TREE)
    with pytest.raises(ValueError, match="is no path of the last tree"):
        target.commit(path)


def test_calls_in_the_wrong_order_are_refused(target: ToyTarget) -> None:
    with pytest.raises(RuntimeError, match="commit needs a forward_tree first"):
        target.commit([0])
    with pytest.raises(RuntimeError, match="forward_tree needs a prefill first"):
        ToyTarget(vocab_size=8).forward_tree(TREE)


def test_a_commit_serves_one_forward(target: ToyTarget) -> None:
    target.forward_tree(TREE)
    target.commit([0])
    with pytest.raises(RuntimeError, match="commit needs a forward_tree first"):
        target.commit([0])


def test_prefill_and_reset_forget(target: ToyTarget) -> None:
    target.forward_tree(TREE)
    target.prefill([2], reserve=0)
    assert target.committed_ids == (2,)
    with pytest.raises(RuntimeError, match="commit needs a forward_tree first"):
        target.commit([0])
    target.reset()
    assert target.num_committed == 0


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([], "the prompt is empty"), ([1, 8], r"must be in \[0, 8\), got 8"), ([-1], "got -1")],
)
def test_bad_prompts_are_refused(prompt: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ToyTarget(vocab_size=8).prefill(prompt, reserve=1)


def test_prompt_and_reserve_must_fit() -> None:
    toy = ToyTarget(vocab_size=8, max_context=10)
    toy.prefill(PROMPT, reserve=7)
    with pytest.raises(ContextOverflow, match=r"prompt \(3 tokens\).*\(8 tokens\).*the 10 tokens"):
        toy.prefill(PROMPT, reserve=8)


def test_logits_by_hand() -> None:
    """Table row of the last two tokens, a bonus for what followed the last token, EOS apart."""
    toy = ToyTarget(vocab_size=8, seed=3, eos_logit=-2.0, copy_bonus=5.0)
    table = np.random.default_rng(3).normal(0.0, 1.5, (8, 8, 8))
    expected = table[4, 1].copy()
    expected[6] += 5.0  # 1 was followed by 2, and most recently by 6.
    expected[0] -= 2.0
    assert toy.logits([1, 2, 1, 6, 4, 1]).tolist() == expected.tolist()
    alone = table[5, 5].copy()
    alone[0] -= 2.0
    assert toy.logits([5]).tolist() == alone.tolist()


def test_seed_fixes_the_law() -> None:
    one, same, other = (ToyTarget(vocab_size=8, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.logits([1, 2]), same.logits([1, 2]))
    assert not torch.equal(one.logits([1, 2]), other.logits([1, 2]))
    assert torch.equal(pickle.loads(pickle.dumps(one)).logits([1, 2]), same.logits([1, 2]))


def test_eos_ids() -> None:
    assert ToyTarget(vocab_size=8, eos_id=5).eos_ids == {5}
    assert ToyTarget(vocab_size=8, eos_id=None).eos_ids == frozenset()


@pytest.mark.parametrize("vocab_size", [1, 513])
def test_vocabulary_sizes_outside_the_range_are_refused(vocab_size: int) -> None:
    with pytest.raises(ValueError, match=rf"must be in \[2, 512\], got {vocab_size}"):
        ToyTarget(vocab_size=vocab_size)


@pytest.mark.parametrize("eos_id", [8, -9])
def test_eos_outside_the_vocabulary_is_refused(eos_id: int) -> None:
    with pytest.raises(ValueError, match="eos_id"):
        ToyTarget(vocab_size=8, eos_id=eos_id)


def test_codec_makes_ids_of_words() -> None:
    codec = ToyCodec(vocab_size=8)
    ids = codec.encode([("user", "one two"), ("assistant", "one")])
    assert len(ids) == 3
    assert ids[0] == ids[2]
    assert all(1 <= token_id < 8 for token_id in ids)
    assert codec.decode([5, 7, 1]) == "t5 t7 t1"
    assert codec.decode([]) == ""
    assert codec.encode([("user", "")]) == []
    assert [*codec.ids_by_token().items()] == [(f"t{token_id}", token_id) for token_id in range(8)]
