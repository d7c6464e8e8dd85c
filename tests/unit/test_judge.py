"""The judge's verifier, worked by hand on a head that reads the first number of a hidden state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from primitives.types import DraftTree, Verdict
from primitives.verifiers.judge import Judge
from support.relaxed import UNSURE, chain, rows
from support.toy import RefusesToDraw


def first_number(hidden: Tensor) -> Tensor:
    """The head: the probability stands in the hidden state itself."""
    return hidden[:, 0]


def judge(
    tree: DraftTree,
    probs: Sequence[float],
    laws: Sequence[Sequence[float]] | None = None,
    *,
    eos_ids: frozenset[int] = frozenset(),
    **fields: Any,
) -> Verdict:
    """What the verifier says if the head gives `probs` at the nodes; the argmax is token 0."""
    verifier = Judge(**fields)
    verifier.attach(head=first_number)
    hidden = torch.tensor([[prob, -1.0] for prob in probs], dtype=torch.float64)
    logits = rows(*(laws or [UNSURE] * tree.num_nodes))
    return verifier.verify(tree, rows(UNSURE)[0], logits, RefusesToDraw(), eos_ids, hidden=hidden)


def test_mismatches_pass_above_the_threshold() -> None:
    # Tokens 3 and 1 are mismatches with 0.9 and 0.5; 0 between them is the argmax, whatever its
    # own probability.
    tree, probs = chain(3, 0, 1), (0.0, 0.9, 0.0, 0.5)
    verdict = judge(tree, probs)
    assert (verdict.path, verdict.reasons) == ((0, 1, 2), ("pending", "judge", "em"))
    assert (verdict.next_id, verdict.num_exact) == (0, 1)
    assert judge(tree, probs, threshold=0.49).path == (0, 1, 2, 3)
    assert judge(tree, probs, threshold=0.9).path == (0,)


def test_regret_is_that_of_the_law_and_has_no_bound() -> None:
    verdict = judge(chain(3), (0.0, 0.9))
    assert verdict.regrets == pytest.approx((0, 1.386294))  # ln(0.4 / 0.1).
    assert verdict.regret_bounds == ()


def test_the_state_is_that_of_the_token_itself() -> None:
    # Siblings 1 and 2 under node 0: the second one's own state counts, not the parent's.
    tree = DraftTree.from_nodes([0, 1, 2], [-1, 0, 0])
    assert judge(tree, (0.9, 0.1, 0.8)).path == (0, 2)


def test_longest_path_wins_over_exact_ones() -> None:
    # The argmax 0 ends at once; 1, then 2, are good enough.
    tree = DraftTree.from_nodes([0, 0, 1, 2], [-1, 0, 0, 2])
    verdict = judge(tree, (0.0, 0.0, 0.6, 0.7))
    assert (verdict.path, verdict.num_exact) == ((0, 2, 3), 2)
    assert judge(tree, (0.0, 0.0, 0.6, 0.4)).path == (0, 1)  # A tie: more exact matches.


def test_threshold_1_is_exact_match() -> None:
    assert judge(chain(1, 0), (1.0, 1.0, 1.0), threshold=1.0).path == (0,)
    assert judge(chain(0, 1), (1.0, 1.0, 1.0), threshold=1.0).path == (0, 1)


def test_excluded_tokens_and_alternatives_to_node_0_never_pass() -> None:
    assert judge(chain(1), (1.0, 1.0), [(1.0, 0.0, 0.0, 0.0)] * 2).path == (0,)
    tree = DraftTree.from_nodes([0, 1, 0], [-1, -1, 1])
    assert judge(tree, (1.0, 1.0, 1.0)).path == (0,)


def test_eos_needs_an_exact_match() -> None:
    for eos_id in (0, 1):
        eos_ids = frozenset({eos_id})
        assert judge(chain(1), (0.0, 0.9), eos_ids=eos_ids).path == (0,)
        assert judge(chain(1), (0.0, 0.9), eos_ids=eos_ids, eos_requires_em=False).path == (0, 1)


@pytest.mark.parametrize("threshold", [-0.1, 1.5])
def test_bad_thresholds_are_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=rf"threshold must be in \[0, 1\], got {threshold}"):
        Judge(threshold=threshold)


def test_what_is_missing_is_told() -> None:
    verifier, logits = Judge(), rows(UNSURE, UNSURE)
    with pytest.raises(ValueError, match="needs a trained head"):
        verifier.verify(chain(1), logits[0], logits, RefusesToDraw(), hidden=logits)
    with pytest.raises(TypeError, match="needs no embeddings"):
        verifier.attach(embeddings=logits)
    with pytest.raises(TypeError, match="head must be callable, got 3"):
        verifier.attach(head=3)
    verifier.attach(head=first_number)
    with pytest.raises(ValueError, match="needs the hidden states of the nodes, got none"):
        verifier.verify(chain(1), logits[0], logits, RefusesToDraw())
