"""Sampled drafts of a draft model leave the target's law unchanged: all generations, enumerated."""

from __future__ import annotations

from typing import Any

import pytest

from methods.sampling import SamplingLaw
from methods.targets.toy import ToyTarget
from primitives.random_source import RandomSource
from primitives.registry import TREE_BUILDERS, VERIFIERS
from primitives.retrievers.draft_model import DraftModel
from support.enumeration import assert_same_law, exact_law
from support.toy import continuation_law, generate, make_method

LAW = SamplingLaw(temperature=1.3)
CHAIN = {"num_tokens": 2}
FLAT = {"shape": "tree", "num_tokens": 1, "top_k": 2}
DEEP = {"shape": "tree", "num_tokens": 2, "top_k": 2, "total_nodes": 4}
CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "chain": (CHAIN, 2, 9),
    "siblings": (FLAT, 3, 9),
    "tree": (DEEP, 2, 9),
    "tree-few-candidates": (DEEP, 2, 2),
}
"""Fields, vocabulary and limit of candidates."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("drafts", ["iid", "without_replacement"])
@pytest.mark.parametrize("verifier", ["sampling", "traversal"])
def test_the_law_is_the_targets(verifier: str, drafts: str, case: str) -> None:
    check_law(verifier, "trie", drafts, case, node_budget=9)


@pytest.mark.parametrize("builder", ["trie", "loose_trie"])
@pytest.mark.parametrize("verifier", ["sampling", "traversal"])
def test_a_budget_that_cuts_the_tree_leaves_it_so(verifier: str, builder: str) -> None:
    for node_budget in (1, 2, 3):
        check_law(verifier, builder, "without_replacement", "tree", node_budget=node_budget)


def check_law(verifier: str, builder: str, drafts: str, case: str, *, node_budget: int) -> None:
    fields, vocab_size, max_candidates = CASES[case]
    target, prompt = ToyTarget(vocab_size=vocab_size), [1, 1]
    drafter = DraftModel(drafts=drafts, temperature=0.8, **fields)
    # The draft model knows a token more than the target.
    drafter.attach_draft_model(ToyTarget(vocab_size=vocab_size + 1, seed=7, eos_logit=0.5))
    method = make_method(
        drafter,
        TREE_BUILDERS.create(builder),
        VERIFIERS.create(verifier),
        node_budget=node_budget,
        max_candidates=max_candidates,
    )
    max_new_tokens = fields["num_tokens"] + 2

    def run(random: RandomSource) -> tuple[int, ...]:
        arguments = {"target": target, "law": LAW, "max_new_tokens": max_new_tokens}
        return generate(method, prompt, random=random, **arguments).output_ids

    expected = continuation_law(target, prompt, max_new_tokens, LAW)
    assert_same_law(exact_law(run), expected)
