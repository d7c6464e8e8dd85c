"""Injected faults: no retriever, however wrong, may change what a lossless method puts out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from methods.decoding import Method
from methods.generation import Generation
from methods.sampling import SamplingLaw
from methods.targets.toy import ToyTarget
from primitives.interfaces import Retriever
from primitives.random_source import RandomSource
from primitives.registry import TREE_BUILDERS, VERIFIERS
from support.enumeration import assert_same_law, exact_law
from support.faults import (
    FAULTS,
    AlwaysWrong,
    FaultyRetriever,
    Oracle,
    SampledDrafts,
    predicted_tau,
)
from support.toy import RecordingToyTarget, continuation_law, generate, make_method, seeded_prompts

GREEDY_VERIFIERS = [n for n in VERIFIERS.names() if VERIFIERS.get(n).is_lossless_greedy]
SAMPLING_VERIFIERS = [n for n in VERIFIERS.names() if VERIFIERS.get(n).is_lossless_sampling]
SAMPLING_PAIRS = [
    (builder, verifier)
    for verifier in SAMPLING_VERIFIERS
    for builder in (TREE_BUILDERS.names() if verifier == "sampling" else ["trie"])
]
"""A fault reaches a verifier as a tree: which builder made it matters little to the others."""
FAULT_PROMPTS = [prompt for prompt in seeded_prompts(8, vocab_size=8, max_len=16) if prompt]
DEPTHS = (1, 2, 5)

each_builder = pytest.mark.parametrize("builder", TREE_BUILDERS.names())
each_greedy_verifier = pytest.mark.parametrize("verifier", GREEDY_VERIFIERS)
each_sampling_verifier = pytest.mark.parametrize("verifier", SAMPLING_VERIFIERS)
each_fault = pytest.mark.parametrize("fault", FAULTS)


def _method(retriever: Retriever | None, builder: str, verifier: str, **budgets: int) -> Method:
    return make_method(
        retriever, TREE_BUILDERS.create(builder), VERIFIERS.create(verifier), **budgets
    )


def _tau(generation: Generation) -> float:
    return sum(step.num_output for step in generation.steps) / len(generation.steps)


@each_fault
@each_builder
@each_greedy_verifier
def test_fault_leaves_greedy_ids_unchanged(fault: str, builder: str, verifier: str) -> None:
    faulty = _method(FaultyRetriever(rule=FAULTS[fault]), builder, verifier, max_candidates=4)
    vanilla = _method(None, builder, verifier)
    for seed, prompt in enumerate(FAULT_PROMPTS):
        target = RecordingToyTarget(vocab_size=8, seed=seed)
        arguments: dict[str, Any] = {"target": target, "max_new_tokens": 3 + 2 * seed}
        actual = generate(faulty, prompt, **arguments)
        expected = generate(vanilla, prompt, **arguments)
        assert actual.output_ids == expected.output_ids
        assert actual.finish_reason == expected.finish_reason
        assert sum(step.num_output for step in actual.steps) == len(actual.output_ids) - 1
        assert all(step.num_draft_nodes <= faulty.node_budget for step in actual.steps)


@each_fault
@pytest.mark.parametrize(("builder", "verifier"), SAMPLING_PAIRS)
def test_fault_leaves_the_sampling_law_unchanged(fault: str, builder: str, verifier: str) -> None:
    method = _method(FaultyRetriever(rule=FAULTS[fault]), builder, verifier, max_candidates=4)
    _assert_loop_follows_law(lambda random: method)


@each_builder
@each_sampling_verifier
@pytest.mark.parametrize(("vocab_size", "depth", "num_drafts"), [(3, 1, 1), (3, 1, 2), (2, 2, 2)])
def test_sampled_drafts_leave_the_law_unchanged(
    vocab_size: int, depth: int, num_drafts: int, builder: str, verifier: str
) -> None:
    _assert_sampled_drafts_keep_law(vocab_size, depth, num_drafts, True, builder, verifier)


@each_builder
@each_sampling_verifier
def test_sampled_drafts_with_tied_scores_leave_the_law_unchanged(
    builder: str, verifier: str
) -> None:
    _assert_sampled_drafts_keep_law(3, 1, 2, False, builder, verifier)


def _assert_sampled_drafts_keep_law(
    vocab_size: int, depth: int, num_drafts: int, falling_scores: bool, builder: str, verifier: str
) -> None:
    if "iid" not in VERIFIERS.get(verifier).valid_proposals:
        pytest.skip(f"{verifier} is not valid for iid drafts")

    def make(random: RandomSource) -> Method:
        drafts = SampledDrafts(
            draft_model=ToyTarget(vocab_size=vocab_size, seed=7, eos_logit=0.5),
            random=random,
            depth=depth,
            num_drafts=num_drafts,
            falling_scores=falling_scores,
        )
        return _method(drafts, builder, verifier, node_budget=3)

    _assert_loop_follows_law(make, vocab_size=vocab_size, max_new_tokens=2 + depth)


def _assert_loop_follows_law(
    make: Callable[[RandomSource], Method], *, vocab_size: int = 3, max_new_tokens: int = 3
) -> None:
    """All outputs of a few tokens, EOS among them, have the probability that the target gives."""
    target, law, prompt = ToyTarget(vocab_size=vocab_size), SamplingLaw(temperature=1.3), [1, 1]

    def run(random: RandomSource) -> tuple[int, ...]:
        generation = generate(
            make(random),
            prompt,
            target=target,
            law=law,
            random=random,
            max_new_tokens=max_new_tokens,
        )
        return generation.output_ids

    assert_same_law(exact_law(run), continuation_law(target, prompt, max_new_tokens, law))


@each_builder
@each_greedy_verifier
@pytest.mark.parametrize("depth", DEPTHS)
def test_oracle_reaches_its_depth(depth: int, builder: str, verifier: str) -> None:
    num_eos_inside_draft = num_cut_by_limit = 0
    for seed, prompt in itertools.product(range(4), FAULT_PROMPTS):
        target = ToyTarget(vocab_size=8, seed=seed, eos_logit=0.0)
        method = _method(Oracle(target=target, depth=depth), builder, verifier, node_budget=depth)
        vanilla = _method(None, builder, verifier)
        actual = generate(method, prompt, target=target, max_new_tokens=12)
        expected = generate(vanilla, prompt, target=target, max_new_tokens=12)
        assert actual.output_ids == expected.output_ids
        if actual.steps:
            assert _tau(actual) == predicted_tau(len(actual.output_ids), depth)
            last = actual.steps[-1]
            num_eos_inside_draft += last.num_accepted == last.num_output
            num_cut_by_limit += actual.finish_reason == "length" and last.draft_depth < depth
    assert num_eos_inside_draft, "no generation ended inside a draft"
    assert num_cut_by_limit or depth == 1, "no draft was cut by the output budget"


@each_builder
@each_greedy_verifier
def test_always_wrong_drafts_cost_nothing_but_nodes(builder: str, verifier: str) -> None:
    target = ToyTarget(vocab_size=8, eos_id=None)
    method = _method(AlwaysWrong(target=target, depth=3), builder, verifier)
    for prompt in FAULT_PROMPTS:
        generation = generate(method, prompt, target=target, max_new_tokens=10)
        assert _tau(generation) == 1
        assert all(step.num_accepted == 0 for step in generation.steps)
        assert [step.num_draft_nodes for step in generation.steps[:-3]] == [3] * 6
