"""Short ways to run a method on the toy target, and the exact laws that its output must have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from methods.decoding import Method, decode
from methods.generation import Generation, Probe, StopRule
from methods.sampling import SamplingLaw
from methods.targets.base import TargetModel, TreeOutput
from methods.targets.toy import ToyTarget
from primitives.interfaces import Retriever, TreeBuilder, Verifier
from primitives.random_source import RandomSource
from primitives.registry import TREE_BUILDERS, VERIFIERS
from primitives.types import DraftTree

GREEDY = SamplingLaw()


class RefusesToDraw:
    """A random source for deterministic code: any draw is an error."""

    def categorical(self, weights: Tensor) -> int:
        raise AssertionError("a deterministic component drew a random token")

    def bernoulli(self, probability: float) -> bool:
        raise AssertionError("a deterministic component flipped a coin")


class RecordingToyTarget(ToyTarget):
    """A toy target that refuses ids outside the vocabulary, and notes what each step committed.

    Attributes:
        commits: The ids that each call of `commit` added.
    """

    def reset(self) -> None:
        super().reset()
        self.commits: list[tuple[int, ...]] = []

    def forward_tree(self, tree: DraftTree) -> TreeOutput:
        outside = [t for t in tree.token_ids.tolist() if not 0 <= t < self.vocab_size]
        assert not outside, f"ids outside the vocabulary were forwarded: {outside}"
        return super().forward_tree(tree)

    def commit(self, path: Sequence[int]) -> None:
        before = self.num_committed
        super().commit(path)
        self.commits.append(self.committed_ids[before:])


def make_method(
    retriever: Retriever | None = None,
    tree_builder: TreeBuilder | None = None,
    verifier: Verifier | None = None,
    *,
    node_budget: int = 16,
    max_candidates: int = 8,
) -> Method:
    """A method; what is not given is the plainest there is, so `make_method()` is vanilla."""
    return Method(
        name="test",
        retriever=retriever,
        tree_builder=tree_builder or TREE_BUILDERS.create("chain"),
        verifier=verifier or VERIFIERS.create("greedy"),
        node_budget=node_budget,
        max_candidates=max_candidates,
    )


def generate(
    method: Method,
    prompt_ids: Sequence[int],
    *,
    target: TargetModel,
    max_new_tokens: int = 24,
    law: SamplingLaw = GREEDY,
    random: RandomSource | None = None,
    probe: Probe | None = None,
) -> Generation:
    """`decode` with the target's EOS; without `random`, any draw is an error."""
    return decode(
        prompt_ids,
        target=target,
        method=method,
        stop=StopRule(max_new_tokens=max_new_tokens, eos_ids=target.eos_ids),
        law=law,
        random=random or RefusesToDraw(),
        probe=probe,
    )


def greedy_continuation(
    target: ToyTarget, prefix: Sequence[int], max_new_tokens: int
) -> tuple[int, ...]:
    """What greedy decoding emits behind `prefix`, computed without the loop under test."""
    ids = list(prefix)
    while len(ids) - len(prefix) < max_new_tokens:
        ids.append(int(np.argmax(target.logits(ids).numpy())))
        if ids[-1] in target.eos_ids:
            break
    return tuple(ids[len(prefix) :])


def continuation_law(
    target: ToyTarget, prefix: Sequence[int], max_new_tokens: int, law: SamplingLaw
) -> dict[tuple[int, ...], float]:
    """Probability of every output behind `prefix`, as a product of next-token probabilities."""
    outputs: dict[tuple[int, ...], float] = {}
    stack: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while stack:
        output, weight = stack.pop()
        if len(output) == max_new_tokens or (output and output[-1] in target.eos_ids):
            outputs[output] = weight
            continue
        probs = torch.softmax(law.apply(target.logits([*prefix, *output])), dim=-1).tolist()
        stack += [((*output, token), weight * prob) for token, prob in enumerate(probs) if prob > 0]
    return outputs


def seeded_prompts(num_prompts: int, *, vocab_size: int, max_len: int = 24) -> list[list[int]]:
    """Prompts of all lengths from 1 up; half of them repeat themselves, as copying drafts need."""
    prompts = []
    for seed in range(num_prompts):
        rng = np.random.default_rng(seed)
        ids = rng.integers(0, vocab_size, 1 + seed * max_len // num_prompts).tolist()
        prompts.append(ids + ids if seed % 2 else ids)
    return prompts
