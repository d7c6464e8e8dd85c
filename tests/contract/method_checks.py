"""Checks that every method passes, on the toy target."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

from contract.components import only_if
from contract.methods import Subject
from methods.decoding import Method
from methods.generation import Generation, Probe, StepRecord
from methods.sampling import SamplingLaw
from methods.targets.toy import ToyTarget
from primitives.random_source import RandomSource, TorchRandom
from support.enumeration import assert_same_law, exact_law
from support.toy import (
    GREEDY,
    RecordingToyTarget,
    continuation_law,
    generate,
    greedy_continuation,
    make_method,
    seeded_prompts,
)

VOCAB_SIZE = 12
SAMPLING_LAW = SamplingLaw(temperature=1.0)
LAW_CASES = (
    (SAMPLING_LAW, 4, 3, [1, 2, 3, 1, 2]),
    (SamplingLaw(temperature=0.6, top_k=2), 4, 4, [3, 1, 3, 1, 3]),
    (SamplingLaw(temperature=1.5, top_p=0.8), 3, 4, [1, 2, 1, 1, 2]),
)
"""Sampling law, vocabulary, output budget and prompt of each enumerated generation."""


@only_if(lambda subject: subject.verifier.is_lossless_greedy)
def check_greedy_ids_equal_vanilla(subject: Subject) -> None:
    vanilla = make_method(verifier=subject.verifier, node_budget=0)
    method = subject.make()
    for case in _cases(num_prompts=20):
        expected = generate(vanilla, **case)
        actual = generate(method, **case)
        assert actual.output_ids == expected.output_ids
        assert actual.finish_reason == expected.finish_reason
        assert actual.output_ids == greedy_continuation(
            case["target"], case["prompt_ids"], case["max_new_tokens"]
        )


@only_if(lambda subject: subject.verifier.is_lossless_sampling)
def check_sampled_output_follows_the_law(subject: Subject) -> None:
    """The whole loop, enumerated: propose, screen, build, verify, clip and the next step."""
    method = subject.make()
    for law, vocab_size, max_new_tokens, prompt in LAW_CASES:
        target = ToyTarget(vocab_size=vocab_size)

        def run(random: RandomSource, arguments: dict[str, Any]) -> tuple[int, ...]:
            _forget(method)
            return generate(method, random=random, **arguments).output_ids

        arguments = {
            "prompt_ids": prompt, "target": target, "law": law, "max_new_tokens": max_new_tokens
        }  # fmt: skip
        actual = exact_law(functools.partial(run, arguments=arguments))
        assert_same_law(actual, continuation_law(target, prompt, max_new_tokens, law))


def check_cache_holds_what_was_output(subject: Subject) -> None:
    """After each step the committed ids are the prompt and the output without pending."""
    method = subject.make()
    for case in _cases():
        target = RecordingToyTarget(**_fields(case["target"]))
        watch = _Watch(target)
        generation = _generate(method, **{**case, "target": target}, probe=watch)
        num_prompt = len(case["prompt_ids"])
        whole = (*case["prompt_ids"], *generation.output_ids)
        assert target.committed_ids == whole[: target.num_committed]
        num_output = 1
        for step, num_committed, committed in zip(
            generation.steps, watch.num_committed, target.commits, strict=True
        ):
            num_output += step.num_output
            has_pending = num_prompt + num_output - num_committed
            is_last = step is generation.steps[-1]
            assert has_pending == 1 or (is_last and has_pending == 0)
            assert len(committed) == len(step.reasons) == len(step.sources)


def check_counts_add_up(subject: Subject) -> None:
    method = subject.make()
    for case in _cases():
        generation = _generate(method, **case)
        num_tokens = len(generation.output_ids)
        assert 1 <= num_tokens <= case["max_new_tokens"]
        assert sum(step.num_output for step in generation.steps) == num_tokens - 1
        for step in generation.steps:
            assert 0 <= step.num_accepted <= step.num_draft_nodes <= method.node_budget
            assert step.num_accepted <= step.num_output + 1
        eos_ids = case["target"].eos_ids
        assert not eos_ids & set(generation.output_ids[:-1])
        assert (generation.finish_reason == "eos") == (generation.output_ids[-1] in eos_ids)
        assert generation.finish_reason == "eos" or num_tokens == case["max_new_tokens"]


@only_if(lambda s: s.verifier.is_lossless_greedy or s.verifier.is_lossless_sampling)
def check_no_step_without_output(subject: Subject) -> None:
    method = subject.make()
    for case in _cases():
        generation = _generate(method, **case)
        assert len(generation.steps) <= len(generation.output_ids) - 1
        assert all(step.num_output >= 1 for step in generation.steps)


def check_second_prompt_is_unaffected_by_the_first(subject: Subject) -> None:
    used = subject.make()
    cases = list(_cases(num_prompts=5))
    for first, second in itertools.pairwise(cases):
        _generate(used, **first)
        _forget(used)
        assert _generate(used, **second) == _generate(subject.make(), **second)


def check_configuration_survives_a_generation(subject: Subject) -> None:
    method = subject.make()
    parts = [part for part in (method.retriever, method.tree_builder, method.verifier) if part]
    before = [(copy.deepcopy(_fields(part)), repr(part)) for part in parts]
    for case in _cases():
        _generate(method, **case)
    assert [(_fields(part), repr(part)) for part in parts] == before


@only_if(lambda subject: subject.is_vanilla)
def check_vanilla_has_tau_exactly_1(subject: Subject) -> None:
    method = subject.make()
    for case in _cases():
        generation = _generate(method, **case)
        assert len(generation.steps) == len(generation.output_ids) - 1
        for step in generation.steps:
            assert (step.num_output, step.num_draft_nodes, step.num_accepted) == (1, 0, 0)


def _cases(num_prompts: int = 8) -> Iterator[dict[str, Any]]:
    """Arguments of `generate`: some outputs end with EOS, some at once, some at the limit."""
    for seed, prompt in enumerate(seeded_prompts(num_prompts, vocab_size=VOCAB_SIZE)):
        target = ToyTarget(vocab_size=VOCAB_SIZE, seed=seed % 5, eos_logit=(seed % 4) - 2.0)
        yield {"prompt_ids": prompt, "target": target, "max_new_tokens": 1 + 3 * seed % 29}


def _generate(method: Method, **case: Any) -> Generation:
    samples = method.verifier.samples
    law = SAMPLING_LAW if samples else GREEDY
    random = TorchRandom.from_seed(len(case["prompt_ids"])) if samples else None
    return generate(method, law=law, random=random, **case)


def _forget(method: Method) -> None:
    """What a runner does between prompts that are not to influence each other."""
    if method.retriever is not None and method.retriever.is_cross_request:
        method.retriever.reset()


def _fields(component: Any) -> dict[str, Any]:
    return {
        field.name: getattr(component, field.name)
        for field in dataclasses.fields(component)
        if field.init
    }


class _Watch(Probe):
    """Notes how many tokens the cache holds at the end of each step."""

    def __init__(self, target: ToyTarget) -> None:
        self.target = target
        self.num_committed: list[int] = []

    def end_step(self, step: StepRecord) -> None:
        self.num_committed.append(self.target.num_committed)
