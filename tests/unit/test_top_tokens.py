"""The most probable tokens of rows of logits, against a stable sort of the whole row."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from primitives.structures.top_tokens import BLOCK, top_logits, top_tokens


@given(
    vocab_size=st.sampled_from([1, 5, BLOCK - 1, BLOCK, 3 * BLOCK + 7, 40 * BLOCK + 1]),
    k=st.sampled_from([1, 2, 8, 19]),
    num_levels=st.sampled_from([2, 5, 1000]),
    seed=st.integers(0, 1000),
)
def test_ranks_like_a_stable_sort(vocab_size, k, num_levels, seed):
    random = torch.Generator().manual_seed(seed)
    logits = torch.randint(-num_levels, num_levels, (3, vocab_size), generator=random).float()
    logits[0, ::2] = float("-inf")
    logits[1] *= -0.0  # Zeros of both signs are equal.
    ranked = logits.sort(dim=-1, descending=True, stable=True)
    k = min(k, vocab_size)
    assert torch.equal(top_tokens(logits, k), ranked.indices[:, :k])
    assert torch.equal(top_logits(logits, k), ranked.values[:, :k])


def test_fewer_tokens_than_asked_for():
    logits = torch.tensor([[0.5, 2.0, 2.0]], dtype=torch.float64)
    assert top_tokens(logits, 9).tolist() == [[1, 2, 0]]
    assert top_logits(logits, 9).tolist() == [[2.0, 2.0, 0.5]]
