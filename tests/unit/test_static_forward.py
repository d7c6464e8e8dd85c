"""Compiled forwards of fixed shapes compute what plain ones do."""

from __future__ import annotations

import functools
import shutil
from unittest import mock

import numpy as np
import pytest
import torch

from methods.targets.huggingface import HuggingFaceTarget
from methods.targets.static_forward import bucket_of
from primitives.types import DraftTree
from unit.test_huggingface_target import PROMPT, TREE, tiny_model


def targets(name, attn_implementation="sdpa", dtype=torch.float64):
    """The same model plain and compiled."""
    model = tiny_model(name, attn_implementation).to(dtype)
    arguments = {"vocab_size": 60, "eos_ids": frozenset({2})}
    plain = HuggingFaceTarget(model, **arguments)
    return plain, HuggingFaceTarget(model, **arguments, compile_mode="inductor")


def walk(target):
    """Logits and hidden states of a few steps of different sizes."""
    rows = []
    target.prefill(PROMPT, reserve=16, draft_rows=8, hidden_layer=0.5)
    for tree, path in ((TREE, [0, 1, 3]), (DraftTree.root_only(9), [0]), (TREE, [0]), (TREE, [0])):
        out = target.forward_tree(tree)
        rows += [out.logits.clone(), out.hidden.clone(), out.layer_hidden.clone()]
        target.commit(path)
        target.cache.check_integrity()
    return rows


@pytest.fixture
def traced(monkeypatch):
    """Traces and specialises as ever, but does not generate code, which takes minutes."""
    monkeypatch.setattr(torch, "compile", functools.partial(_trace, torch.compile))


def _trace(compile_, model, mode=None, dynamic=None):
    return compile_(model, backend="eager", dynamic=dynamic, fullgraph=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "attn_implementation"),
    [
        ("llama", "sdpa"),
        ("llama", "eager"),
        ("qwen3", "sdpa"),
        ("gemma3", "sdpa"),
        ("gpt2", "sdpa"),
    ],
)
def test_equals_the_plain_forward(traced, name, attn_implementation):
    plain, compiled = targets(name, attn_implementation)
    for ours, theirs in zip(walk(compiled), walk(plain), strict=True):
        # Eager attention sums in float32, over the whole buffers here.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_steps_of_one_bucket_are_compiled_once(traced):
    _, compiled = targets("llama")
    with mock.patch.object(compiled._static, "_forward", wraps=compiled._static._forward) as spy:
        walk(compiled)
    shapes = {call.kwargs["attention_mask"].shape for call in spy.call_args_list}
    assert shapes == {(1, 1, 8, 1024), (1, 1, 1, 1024)}


def test_rows_beyond_the_capacity_are_refused(traced):
    _, compiled = targets("llama")
    compiled.prefill(PROMPT, reserve=0)
    with (
        pytest.raises(RuntimeError, match="cache of 1024 rows asked to hold 1025"),
        compiled.cache.written_at(np.arange(1000, 1025)),
    ):
        pass


@pytest.mark.parametrize(("num_rows", "size"), [(1, 1), (3, 4), (64, 64), (65, 128), (257, 512)])
def test_buckets(num_rows, size):
    assert bucket_of(num_rows) == size


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of torch's own code.
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler on CPU")
def test_generated_code_equals_the_plain_forward():
    plain, compiled = targets("llama", dtype=torch.float32)
    for ours, theirs in zip(walk(compiled), walk(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
