"""The real model: lossless methods give the ids of transformers' own greedy decoding."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
import torch

from benchmarks.datasets import DATASETS
from methods.build import build_model, build_vanilla
from methods.decoding import Method, decode
from methods.generation import Generation, StopRule
from methods.sampling import SamplingLaw
from methods.targets.huggingface import HuggingFaceTarget
from methods.targets.loading import LoadedModel
from primitives.random_source import TorchRandom
from primitives.registry import RETRIEVERS, TREE_BUILDERS, VERIFIERS
from primitives.types import DraftTree

pytestmark = pytest.mark.slow
NUM_TOKENS = 32
PLD = Method(
    name="pld",
    retriever=RETRIEVERS.create("prompt_lookup"),
    tree_builder=TREE_BUILDERS.create("chain"),
    verifier=VERIFIERS.create("greedy"),
    node_budget=10,
    max_candidates=1,
)
TRIE = Method(
    name="pld+trie",
    retriever=RETRIEVERS.create("prompt_lookup", match="all"),
    tree_builder=TREE_BUILDERS.create("trie"),
    verifier=VERIFIERS.create("greedy"),
    node_budget=24,
    max_candidates=16,
)


@functools.cache
def model(quantization: str | None = None) -> LoadedModel:
    config = {"kind": "huggingface", "name_or_path": "embedded", "dtype": "float32"}
    return build_model({**config, "device": "cpu", "quantization": quantization})


def target(quantization: str | None = None) -> HuggingFaceTarget:
    found = model(quantization).target
    assert isinstance(found, HuggingFaceTarget)
    return found


@functools.cache
def prompts() -> list[list[int]]:
    """One first turn of each category, and one second turn with its history."""
    test = DATASETS.create("quickstart").load("test").prompts
    firsts = {prompt.category: prompt for prompt in reversed(test)}
    encoded = [model().codec.encode([("user", p.turns[0])]) for p in firsts.values()]
    talk = firsts["multi_turn"]
    messages = [
        ("user", talk.turns[0]),
        ("assistant", talk.references[0]),
        ("user", talk.turns[1]),
    ]
    return [*encoded, model().codec.encode(messages)]


def answer(prompt: Sequence[int], method: Method, quantization: str | None = None) -> Generation:
    return decode(
        prompt,
        target=target(quantization),
        method=method,
        stop=StopRule(max_new_tokens=NUM_TOKENS, eos_ids=target(quantization).eos_ids),
        law=SamplingLaw(),
        random=TorchRandom.from_seed(0),
    )


def test_vanilla_pld_and_trie_give_the_ids_of_generate() -> None:
    num_steps = 0
    for prompt in prompts():
        expected = tuple(target().generate(prompt, NUM_TOKENS))
        for method in (build_vanilla(SamplingLaw()), PLD, TRIE):
            generation = answer(prompt, method)
            assert generation.output_ids == expected
            if method is PLD:
                num_steps += len(generation.steps)
    assert num_steps < 0.8 * NUM_TOKENS * len(prompts())  # Drafts are accepted, not just harmless.


def test_int8_vanilla_and_pld_give_the_same_ids() -> None:
    for prompt in prompts():
        expected = answer(prompt, build_vanilla(SamplingLaw()), "int8").output_ids
        assert answer(prompt, PLD, "int8").output_ids == expected


@pytest.mark.parametrize(("quantization", "tolerance"), [(None, 1e-3), ("int8", 0.0)])
def test_tree_forward_equals_sequential_forwards(
    quantization: str | None, tolerance: float
) -> None:
    tree = DraftTree.from_nodes([28, 260, 260, 198, 30, 284], [-1, 0, 1, 1, 2, 0])
    prompt = prompts()[0]
    target(quantization).prefill(prompt, reserve=8, draft_rows=8)
    logits = target(quantization).forward_tree(tree).logits.clone()
    for node in range(tree.num_nodes):
        path = [int(tree.token_ids[i]) for i in tree.path_to(node)]
        alone = target(quantization).prefill([*prompt, *path], reserve=0).last_logits
        error = (logits[node] - alone).abs().max() / alone.std()
        assert error <= tolerance


def test_int8_linear_layers_do_not_see_the_number_of_rows() -> None:
    layers = target("int8").model.model.layers
    x = torch.randn(1, 17, 576, generator=torch.Generator().manual_seed(0))
    for module in (
        layers[0].mlp.gate_proj,
        layers[7].self_attn.q_proj,
        target("int8").model.lm_head,
    ):
        together = module(x)
        for row in range(17):
            assert torch.equal(together[:, row], module(x[:, row : row + 1])[:, 0])


def test_the_chat_model_answers_in_english() -> None:
    ids = model().codec.encode([("user", "What is the capital of France?")])
    assert "Paris" in model().codec.decode(answer(ids, PLD).output_ids)
