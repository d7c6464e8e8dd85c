"""The Hugging Face adapter on tiny random models, in float64: rounding cannot hide a mistake."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from methods.build import build_vanilla
from methods.decoding import Method, decode
from methods.generation import StopRule
from methods.sampling import SamplingLaw
from methods.targets.base import (
    BatchedModel,
    ContextOverflow,
    EmbeddingModel,
    GeneratingModel,
    UnsupportedModel,
)
from methods.targets.capability import tree_forward_error
from methods.targets.grouped_attention import EXACT_ATTENTION, GROUPED_ATTENTION
from methods.targets.huggingface import HuggingFaceTarget
from primitives.interfaces import Retriever
from primitives.random_source import TorchRandom
from primitives.registry import TREE_BUILDERS, VERIFIERS
from primitives.types import Candidate, Context, DraftTree

SHAPE = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, max_position_embeddings=128,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
GROUPED = dict(num_key_value_heads=2)
HEAD = dict(head_dim=8)
CONFIGS: dict[str, Any] = {
    "llama": lambda: tf.LlamaConfig(**SHAPE, **GROUPED),
    "qwen2": lambda: tf.Qwen2Config(**SHAPE, **GROUPED),
    "qwen3": lambda: tf.Qwen3Config(**SHAPE, **GROUPED, **HEAD),
    "mistral": lambda: tf.MistralConfig(**SHAPE, **GROUPED, sliding_window=None),
    "gemma": lambda: tf.GemmaConfig(**SHAPE, **GROUPED, **HEAD),
    "gemma3": lambda: tf.Gemma3TextConfig(**SHAPE, **GROUPED, **HEAD, sliding_window=64),
    "phi": lambda: tf.PhiConfig(**SHAPE),
    "phi3": lambda: tf.Phi3Config(**SHAPE),
    "olmo": lambda: tf.OlmoConfig(**SHAPE),
    "olmo2": lambda: tf.Olmo2Config(**SHAPE),
    "cohere": lambda: tf.CohereConfig(**SHAPE, logit_scale=1.0),
    "gpt_neox": lambda: tf.GPTNeoXConfig(**SHAPE),
    "gpt2": lambda: tf.GPT2Config(
        vocab_size=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=128,
        bos_token_id=1,
        eos_token_id=2,
    ),
}
#            0: 5
#      1: 6     2: 7     6: 8
#     3: 8    5: 6  7: 9
#     4: 9
TREE = DraftTree.from_nodes([5, 6, 7, 8, 9, 6, 8, 9], [-1, 0, 0, 1, 3, 2, 0, 2])
PROMPT = [3, 4, 5, 6, 7, 11, 12]


@functools.cache
def tiny_model(name: str, attn_implementation: str = "sdpa", seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = CONFIGS[name]() if name in CONFIGS else None
    model = tf.AutoModelForCausalLM.from_config(
        config, attn_implementation=attn_implementation, dtype=torch.float64
    ).eval()
    return _spread(model)


def _spread(model: Any) -> Any:
    """Larger weights: with the library's own, attention patterns hardly change the logits."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def target_of(name: str, attn_implementation: str = "sdpa", **kwargs: Any) -> HuggingFaceTarget:
    options = {"vocab_size": 60, "eos_ids": frozenset({2})} | kwargs
    return HuggingFaceTarget(tiny_model(name, attn_implementation), **options)


def path_ids(node: int) -> list[int]:
    return [int(TREE.token_ids[i]) for i in TREE.path_to(node)]


@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", CONFIGS)
def test_tree_forward_equals_sequential_forwards(name: str, attn_implementation: str) -> None:
    target = target_of(name, attn_implementation)
    target.prefill(PROMPT, reserve=16)
    tree = target.forward_tree(TREE)
    assert tree.logits.shape == (8, 60)
    for node in range(TREE.num_nodes):
        alone = target.prefill(PROMPT + path_ids(node), reserve=0)
        torch.testing.assert_close(tree.logits[node], alone.last_logits, rtol=0, atol=1e-9)
        torch.testing.assert_close(tree.hidden[node], alone.last_hidden, rtol=0, atol=1e-9)


@pytest.mark.parametrize("path", [[0], [0, 1], [0, 2, 7], [0, 1, 3, 4], [0, 6]], ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_cache_after_commit_equals_that_of_a_fresh_run(name: str, path: list[int]) -> None:
    target = target_of(name)
    target.prefill(PROMPT, reserve=16)
    target.forward_tree(TREE)
    target.commit(path)
    target.cache.check_integrity()
    assert target.num_committed == len(PROMPT) + len(path)
    committed = [
        (_rows(layer.keys, target), _rows(layer.values, target)) for layer in target.cache.layers
    ]
    target.prefill(PROMPT + path_ids(path[-1]), reserve=0)
    for (keys, values), layer in zip(committed, target.cache.layers, strict=True):
        torch.testing.assert_close(keys, _rows(layer.keys, target), rtol=0, atol=1e-9)
        torch.testing.assert_close(values, _rows(layer.values, target), rtol=0, atol=1e-9)


def _rows(buffer: torch.Tensor, target: HuggingFaceTarget) -> torch.Tensor:
    return buffer[:, :, : target.num_committed].clone()


@pytest.mark.parametrize("name", CONFIGS)
def test_vanilla_ids_equal_generate(name: str) -> None:
    target = target_of(name)
    for seed in range(4):
        prompt = torch.randint(3, 60, (5 + seed,), generator=torch.Generator().manual_seed(seed))
        stop = StopRule(max_new_tokens=24, eos_ids=target.eos_ids)
        generation = decode(
            prompt.tolist(), target=target, method=build_vanilla(SamplingLaw()), stop=stop,
            law=SamplingLaw(), random=TorchRandom.from_seed(0),
        )  # fmt: skip
        reference = target.generate(prompt.tolist(), 24)
        assert list(generation.output_ids) == reference


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_logits_behind_several_prompts_are_those_behind_each(name: str) -> None:
    target = target_of(name)
    alone = [target.prefill(prompt, reserve=0).last_logits for prompt in ([5, 6], [7, 5], [5, 5])]
    together = target.last_logits_of([(5, 6), (7, 5), (5, 5)])
    torch.testing.assert_close(together, torch.stack(alone), rtol=0, atol=1e-9)
    assert target.num_committed == 2


def test_a_librarys_model_follows_all_protocols() -> None:
    target = target_of("llama")
    for protocol in (BatchedModel, EmbeddingModel, GeneratingModel):
        assert isinstance(target, protocol)
    assert target.embeddings.shape == (target.vocab_size, 32)


@pytest.mark.parametrize("name", ["llama", "cohere", "gpt2", "gemma3"])
def test_prompt_hidden_states_are_inputs_of_the_lm_head(name: str) -> None:
    target = target_of(name)
    hidden = target.prefill(PROMPT, reserve=0, prompt_hidden=True).prompt_hidden
    assert hidden is not None
    for end in range(1, len(PROMPT) + 1):
        alone = target.prefill(PROMPT[:end], reserve=0)
        torch.testing.assert_close(hidden[end - 1], alone.last_hidden, rtol=0, atol=1e-9)
    assert target.prefill(PROMPT, reserve=0).prompt_hidden is None


@pytest.mark.parametrize("share", [0.01, 0.5])
@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_of_an_inner_layer(name: str, share: float) -> None:
    target = target_of(name)
    states = target.model(
        torch.tensor([[*PROMPT, *path_ids(3)]]), output_hidden_states=True
    ).hidden_states[1][0]
    out = target.prefill(PROMPT, reserve=9, draft_rows=9, hidden_layer=share)
    rows = target.forward_tree(TREE).layer_hidden
    assert torch.allclose(out.prompt_layer_hidden, states[: len(PROMPT)], atol=1e-12)
    assert torch.allclose(rows[3], states[-1], atol=1e-12)
    target.commit([0])
    assert target.forward_tree(DraftTree.root_only(4)).layer_hidden.shape == (1, states.shape[1])
    target.reset()
    assert target.prefill(PROMPT, reserve=9, draft_rows=9).prompt_layer_hidden is None
    assert target.forward_tree(TREE).layer_hidden is None


def test_one_token_prompt_and_second_prompt_do_not_see_the_first() -> None:
    target = target_of("llama")
    first = target.prefill([7], reserve=8).last_logits.clone()
    target.prefill(PROMPT, reserve=64)
    target.forward_tree(TREE)
    again = target.prefill([7], reserve=8).last_logits
    torch.testing.assert_close(first, again, rtol=0, atol=0)


def test_buffers_do_not_grow_within_a_prompt() -> None:
    target = target_of("llama")
    target.prefill(PROMPT, reserve=40)
    buffer = target.cache.layers[0].keys.data_ptr()
    for _ in range(10):
        target.forward_tree(TREE)
        target.commit([0, 2, 7])
    assert target.cache.layers[0].keys.data_ptr() == buffer
    assert target.num_committed == len(PROMPT) + 30


class TestSlidingWindow:
    """A window hides nothing while the text fits into it; beyond it a prompt is refused."""

    def target(self, window: int) -> HuggingFaceTarget:
        torch.manual_seed(0)
        config = tf.MistralConfig(**SHAPE, **GROUPED, sliding_window=window)
        model = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
        return HuggingFaceTarget(model, vocab_size=64, eos_ids=frozenset())

    def test_serves_up_to_the_window_as_the_library_does(self) -> None:
        target = self.target(24)
        assert target.max_context == 24
        stop = StopRule(max_new_tokens=16, eos_ids=frozenset())
        generation = decode(
            list(range(3, 11)), target=target, method=build_vanilla(SamplingLaw()), stop=stop,
            law=SamplingLaw(), random=TorchRandom.from_seed(0),
        )  # fmt: skip
        assert list(generation.output_ids) == target.generate(list(range(3, 11)), 16)

    def test_refuses_beyond_the_window(self) -> None:
        with pytest.raises(ContextOverflow, match="exceed the 24 tokens"):
            self.target(24).prefill(list(range(3, 13)), reserve=15)


@pytest.mark.parametrize(
    ("config", "attn_implementation", "message"),
    [
        (lambda: tf.MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2), "eager",
         "cannot drop rejected draft tokens"),
        (lambda: tf.Qwen3NextConfig(**SHAPE, **GROUPED, **HEAD), "sdpa", "linear_attention"),
        (lambda: tf.MptConfig(vocab_size=64, d_model=32, n_layers=2, n_heads=4), "eager",
         "ignore tree masks or explicit positions|cannot forward a small draft tree"),
        (lambda: tf.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4), "eager",
         "cannot forward a small draft tree"),
    ],
    ids=["recurrent", "hybrid", "alibi", "no 4-D mask"],
)  # fmt: skip
def test_models_that_cannot_serve_are_refused(
    config: Any, attn_implementation: str, message: str
) -> None:
    torch.manual_seed(0)
    model = tf.AutoModelForCausalLM.from_config(
        config(), attn_implementation=attn_implementation, dtype=torch.float64
    ).eval()
    _spread(model)
    with pytest.raises(UnsupportedModel, match=message):
        HuggingFaceTarget(model, vocab_size=64, eos_ids=frozenset())


def test_trial_forward_tells_a_broken_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_of("llama")
    assert tree_forward_error(target) < 1e-9
    monkeypatch.setattr(
        HuggingFaceTarget,
        "_tree_mask",
        lambda self, tree, num_rows, first: np.ones(
            (tree.num_nodes - first, num_rows + tree.num_nodes), dtype=bool
        ),
    )
    assert tree_forward_error(target) > 0.1


def test_trial_forward_tells_a_broken_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_of("llama")
    from methods.targets import kv_cache

    keep = kv_cache.TreeCacheLayer.keep
    monkeypatch.setattr(
        kv_cache.TreeCacheLayer,
        "keep",
        lambda self, s, num_kept, rows: keep(self, s, num_kept, None),
    )
    assert tree_forward_error(target) > 0.1


@pytest.mark.parametrize(
    ("ids", "message"),
    [([], "prompt is empty"), ([3, 60], r"in \[0, 60\), got 60"), ([-1], "got -1")],
)
def test_bad_prompts(ids: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        target_of("llama").prefill(ids, reserve=4)


def test_misuse_is_told() -> None:
    target = target_of("llama")
    with pytest.raises(RuntimeError, match="needs a prefill first"):
        target.forward_tree(TREE)
    target.prefill(PROMPT, reserve=20)
    target.forward_tree(TREE)
    with pytest.raises(RuntimeError, match="must be committed"):
        target.forward_tree(TREE)
    with pytest.raises(ValueError, match="must increase"):
        target.commit([0, 9])
    with pytest.raises(ValueError, match="must increase"):
        target.commit([1, 0])


@pytest.mark.parametrize("attn_implementation", [GROUPED_ATTENTION, EXACT_ATTENTION])
@pytest.mark.parametrize("name", ["llama", "qwen3", "phi", "gpt2"])
def test_grouped_attention_computes_what_sdpa_computes(name: str, attn_implementation: str) -> None:
    stock = target_of(name)
    expected_prompt = stock.prefill(PROMPT, reserve=16).last_logits.clone()
    expected_tree = stock.forward_tree(TREE).logits.clone()
    stock.commit([0])
    expected_row = stock.forward_tree(DraftTree.root_only(9)).logits.clone()
    grouped = target_of(name, attn_implementation)
    actual_prompt = grouped.prefill(PROMPT, reserve=16).last_logits
    torch.testing.assert_close(actual_prompt, expected_prompt, rtol=0, atol=1e-9)
    torch.testing.assert_close(grouped.forward_tree(TREE).logits, expected_tree, rtol=0, atol=1e-9)
    grouped.commit([0])
    actual_row = grouped.forward_tree(DraftTree.root_only(9)).logits
    torch.testing.assert_close(actual_row, expected_row, rtol=0, atol=1e-9)


def test_exact_attention_caches_in_float64() -> None:
    torch.manual_seed(0)
    config = tf.LlamaConfig(**SHAPE, **GROUPED)
    model = tf.AutoModelForCausalLM.from_config(
        config, attn_implementation=EXACT_ATTENTION, dtype=torch.float32
    ).eval()
    target = HuggingFaceTarget(model, vocab_size=64, eos_ids=frozenset())
    assert target.prefill(PROMPT, reserve=4).last_logits.dtype == torch.float32
    assert target.cache.layers[0].keys.dtype == torch.float64
    assert target.cache.layers[1].values.dtype == torch.float64


def test_generate_ignores_penalties_of_the_checkpoint() -> None:
    target = target_of("llama")
    expected = target.generate(PROMPT, 24)
    stored = target.model.generation_config
    stored.repetition_penalty = 1.8
    try:
        assert target.generate(PROMPT, 24) == expected
        assert target.model.generation_config is stored
    finally:
        stored.repetition_penalty = None


@pytest.mark.parametrize("fault", ["oracle", "wrong", "decoys"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt_neox", "gpt2"])
def test_drafted_trees_leave_the_ids_of_vanilla(name: str, fault: str) -> None:
    """Through the whole loop; with decoys before the right child, commits have to move rows."""
    target = target_of(name)
    stop = StopRule(max_new_tokens=24, eos_ids=target.eos_ids)
    settings = {"target": target, "stop": stop, "law": SamplingLaw()}
    for seed in range(3):
        prompt = torch.randint(3, 60, (6,), generator=torch.Generator().manual_seed(seed)).tolist()
        vanilla = decode(
            prompt, method=build_vanilla(SamplingLaw()), random=TorchRandom.from_seed(0), **settings
        )
        method = Method(
            name=fault,
            retriever=Scripted(ids=(*prompt, *vanilla.output_ids), fault=fault),
            tree_builder=TREE_BUILDERS.create("trie"),
            verifier=VERIFIERS.create("greedy"),
            node_budget=16,
            max_candidates=8,
        )
        drafted = decode(prompt, method=method, random=TorchRandom.from_seed(0), **settings)
        assert drafted.output_ids == vanilla.output_ids
        if fault == "wrong":
            assert len(drafted.steps) == len(vanilla.steps)
        else:
            assert len(drafted.steps) <= len(vanilla.steps) // 3 + 1


@dataclass(kw_only=True)
class Scripted(Retriever):
    """Knows the output: drafts it, its opposite, or decoys that come first and then it."""

    ids: tuple[int, ...]
    fault: str

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        right = self.ids[len(context.ids_with_pending) :][:3]
        wrong = tuple((token_id + 1) % 60 for token_id in right)
        drafts = {"oracle": [right], "wrong": [wrong], "decoys": [wrong, right]}[self.fault]
        return [
            Candidate(token_ids=(context.pending_id, *draft), score=-float(rank))
            for rank, draft in enumerate(drafts)
        ]
