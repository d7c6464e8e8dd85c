"""Linear layers that make many rows cheap on CPU: right values, independent rows, safe swaps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from methods.targets.cpu_linear import linear_kernels, prepack_linears, quantize_linears_int8
from methods.targets.int8_linear import (
    FIXED_POINT,
    INT8_MAX,
    Int8Linear,
    SharedRows,
    hadamard,
    quantize_rows,
    weight_limit,
)
from methods.targets.prepacked_linear import PrepackedLinear

needs_mkl = pytest.mark.skipif(not linear_kernels()["prepacked"], reason="this torch has no MKL")

SHAPES = [(2, 1), (3, 5), (7, 2), (64, 48), (33, 129), (192, 576)]
"""(in_features, out_features); most are no multiples of a vector or of four."""

BATCHES = [(), (1,), (2,), (17,), (70,), (0,), (1, 5), (2, 3, 4), (1, 0)]

TINY = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
MODELS: list[Callable[[], Any]] = [
    lambda: tf.LlamaConfig(**TINY, tie_word_embeddings=True),
    lambda: tf.Qwen2Config(**TINY),
    lambda: tf.Qwen3Config(**TINY),
    lambda: tf.MistralConfig(**TINY),
    lambda: tf.GemmaConfig(**TINY),
    lambda: tf.Gemma2Config(**TINY),
    lambda: tf.OlmoConfig(**TINY),
    lambda: tf.Olmo2Config(**TINY),
    lambda: tf.PhiConfig(**TINY),
    lambda: tf.Phi3Config(**TINY, bos_token_id=1, eos_token_id=2),
    lambda: tf.GPTNeoXConfig(**TINY),
    lambda: tf.GPT2Config(vocab_size=60, n_embd=24, n_layer=2, n_head=4, n_positions=64),
]


def _waves(*shape: int) -> Tensor:
    return torch.arange(math.prod(shape)).sin().reshape(shape)


def _linear(in_features: int, out_features: int, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(in_features + out_features)
    return nn.Linear(in_features, out_features, bias=bias).requires_grad_(False)


def _int8(linear: nn.Linear) -> Int8Linear:
    return Int8Linear(linear.weight, linear.bias)


def _model(make_config: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return tf.AutoModelForCausalLM.from_config(make_config()).eval()


def _logits(model: Any, ids: Tensor) -> Tensor:
    with torch.inference_mode():
        return model(ids, use_cache=False).logits


def _exact(layer: Int8Linear, x: Tensor) -> Tensor:
    """The same layer from the formula, with sums in int64."""
    row_max = x.abs().amax(-1, keepdim=True)
    fixed = (x * (FIXED_POINT / row_max)).round().long().unflatten(-1, (-1, len(layer.rotation)))
    rotated = (fixed[..., None, :] * layer.rotation.long()).sum(-1).flatten(-2)
    rotated_max = rotated.abs().amax(-1, keepdim=True)
    rows = (rotated.float() * (INT8_MAX / rotated_max.float())).round().long()
    sums = (rows[..., None, :] * layer.int8_weight.t().long()).sum(-1)
    y = sums.double() * layer.scale.double() * rotated_max.double() * row_max.double()
    return y if layer.bias is None else y + layer.bias.double()


@needs_mkl
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", BATCHES)
def test_prepacked_equals_linear(
    shape: tuple[int, int], batch: tuple[int, ...], bias: bool
) -> None:
    linear = _linear(*shape, bias=bias)
    x = torch.randn(*batch, shape[0])
    y = PrepackedLinear(linear.weight, linear.bias)(x)
    torch.testing.assert_close(y, linear(x), rtol=1e-5, atol=1e-5)


@needs_mkl
def test_prepacked_weight_is_read_back_exactly_and_copies_pack_anew() -> None:
    linear = _linear(33, 129)
    layer = PrepackedLinear(linear.weight, linear.bias)
    assert torch.equal(layer.weight, linear.weight)
    clone = copy.deepcopy(layer)
    linear.weight.zero_()
    x = torch.randn(3, 33)
    assert torch.equal(clone(x), layer(x))
    assert clone._packed is not layer._packed


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", BATCHES)
def test_int8_equals_the_formula(
    shape: tuple[int, int], batch: tuple[int, ...], bias: bool
) -> None:
    layer = _int8(_linear(*shape, bias=bias))
    x = torch.randn(*batch, shape[0])
    y, expected = layer(x), _exact(layer, x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("features", [64, 576, 1536])
def test_int8_error_on_gaussian_rows(features: int) -> None:
    linear = nn.Linear(features, 256).requires_grad_(False)
    linear.weight.normal_(generator=torch.Generator().manual_seed(0))
    x = torch.randn(32, features, generator=torch.Generator().manual_seed(1))
    expected = linear(x)
    error = (_int8(linear)(x) - expected).norm() / expected.norm()
    assert error < (0.013 if weight_limit() == INT8_MAX else 0.02)


def test_int8_sums_are_exact_at_the_limits() -> None:
    layer = Int8Linear(torch.ones(9, 1536), None)
    for sign in (1.0, -1.0):
        for num_rows in (1, 2, 16, 65):
            y = layer(torch.full((num_rows, 1536), sign))
            torch.testing.assert_close(y, torch.full((num_rows, 9), sign * 1536.0))


@given(
    in_features=st.integers(2, 200),
    out_features=st.integers(1, 200),
    num_rows=st.integers(1, 64),
    seed=st.integers(0, 2**16),
)
def test_int8_rows_are_independent(
    in_features: int, out_features: int, num_rows: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = Int8Linear(torch.randn(out_features, in_features, generator=generator), None)
    x = torch.randn(num_rows, in_features, generator=generator)
    x *= 10 ** torch.randint(-4, 5, (num_rows, 1), generator=generator)
    together = layer(x)
    row = seed % num_rows
    assert torch.equal(layer(x[row]), together[row])
    assert torch.equal(layer(x[row:]), together[row:])
    order = torch.randperm(num_rows, generator=generator)
    assert torch.equal(layer(x[order]), together[order])


@pytest.mark.parametrize("shape", [(576, 192), (576, 1536), (1536, 576)])
def test_int8_rows_are_independent_at_every_count(shape: tuple[int, int]) -> None:
    layer = _int8(_linear(*shape))
    x = torch.randn(64, shape[0])
    x[5, 3], x[6] = 1e4, 0.0
    alone = torch.cat([layer(row[None]) for row in x])
    for num_rows in range(1, 65):
        assert torch.equal(layer(x[:num_rows]), alone[:num_rows]), num_rows


@pytest.mark.parametrize(
    "x",
    [
        _waves(12, 4).t(),
        _waves(12, 1).t(),
        _waves(12, 3)[:, :1].t(),
        _waves(3, 24)[:, ::2],
        _waves(1, 5, 12)[:, -1],
        _waves(1, 12).expand(4, 12),
        _waves(2, 12, 3).permute(0, 2, 1),
        _waves(12).as_strided((1, 12), (1, 1)),
    ],
    ids=lambda x: f"{tuple(x.shape)}-{x.stride()}",
)
def test_int8_takes_any_strides(x: Tensor) -> None:
    for out_features in (1, 5):
        layer = _int8(_linear(12, out_features))
        assert torch.equal(layer(x), layer(torch.empty(x.shape).copy_(x)))


def test_int8_special_rows() -> None:
    layer = _int8(_linear(16, 8))
    assert layer.bias is not None
    x = torch.randn(6, 16)
    expected = layer(x)
    x[0] = 0.0
    x[1] = 1e-42
    x[2, 7] = torch.nan
    x[3, 7] = torch.inf
    x[4, 7] = -torch.inf
    y = layer(x)
    assert torch.equal(y[0], layer.bias)
    torch.testing.assert_close(y[1], layer.bias)
    assert y[2].isnan().all()
    assert not y[3:5].isfinite().any()
    assert torch.equal(y[5], expected[5])


def test_int8_outlier_costs_only_its_row_and_there_a_block() -> None:
    linear = _linear(512, 32)
    x = torch.randn(2, 512)
    x[0, 0] = 30.0
    error = (_int8(linear)(x) - linear(x)).norm(dim=1) / linear(x).norm(dim=1)
    assert (error < (0.02 if weight_limit() == INT8_MAX else 0.03)).all()


def test_int8_weight_is_the_rotated_back_one() -> None:
    linear = _linear(40, 30)
    linear.weight[4] = 0.0
    layer = _int8(linear)
    assert layer.weight.shape == (layer.out_features, layer.in_features) == (30, 40)
    assert (layer.weight - linear.weight).norm() < 0.02 * linear.weight.norm()
    assert torch.equal(layer.weight[4], linear.weight[4])


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_hadamard(size: int) -> None:
    matrix = hadamard(size)
    assert torch.equal(matrix.abs(), torch.ones(size, size))
    assert torch.equal(matrix @ matrix, size * torch.eye(size))


def test_int8_refuses_other_dtypes_and_widths() -> None:
    layer = _int8(_linear(4, 4))
    with pytest.raises(ValueError, match=r"take float32 input, got torch\.bfloat16"):
        quantize_rows(torch.ones(1, 4, dtype=torch.bfloat16), hadamard(4))
    with pytest.raises(Exception, match="float"):
        layer(torch.ones(1, 4, dtype=torch.float64))
    for width in (1, 133145):
        with pytest.raises(ValueError, match=rf"must be 2 to 133144, got {width}"):
            Int8Linear(torch.zeros(1, width), None)


def test_shared_rows_are_quantized_once_per_tensor() -> None:
    layers = [_int8(_linear(8, size)) for size in (3, 4, 5)]
    alone = copy.deepcopy(layers)
    shared = SharedRows(3)
    for layer in layers:
        layer.shared = shared
    first, second = torch.randn(2, 8), torch.randn(2, 8)
    rows = shared.quantize(first, layers[0])
    assert shared.quantize(first, layers[1])[0] is rows[0]
    assert shared.quantize(first, layers[0])[0] is not rows[0]  # a new pass of the model
    for x in (first, second, first.clone(), first):
        for layer, expected in zip(layers, alone, strict=True):
            assert torch.equal(layer(x), expected(x))
    assert shared._input is None
    assert shared._rows is None


@pytest.mark.parametrize("make_config", MODELS, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize(
    ("replace", "tolerance"),
    [
        pytest.param(prepack_linears, 1e-5, marks=needs_mkl),
        (quantize_linears_int8, 0.05),
    ],
    ids=["prepack", "int8"],
)
def test_models_stay_what_they_are(
    replace: Callable[[nn.Module], int], tolerance: float, make_config: Callable[[], Any]
) -> None:
    model = _model(make_config)
    embedding = model.get_input_embeddings().weight
    before = embedding.clone()
    num_linears = sum(type(layer) in (nn.Linear, Conv1D) for layer in model.modules())
    ids = torch.randint(3, 60, (1, 20), generator=torch.Generator().manual_seed(0))
    expected = _logits(model, ids)
    assert replace(model) == num_linears
    assert replace(model) == 0
    logits = _logits(model, ids)
    assert (logits - expected).norm() < tolerance * expected.norm()
    assert not any(layer.training for layer in model.modules())
    assert model.get_input_embeddings().weight is embedding
    assert torch.equal(embedding, before)
    assert model.get_output_embeddings().weight.shape == embedding.shape
    assert model.dtype == torch.float32
    assert model.device.type == "cpu"


def test_int8_model_rows_are_independent() -> None:
    model = _model(MODELS[0])
    quantize_linears_int8(model)
    assert model.model.layers[0].self_attn.q_proj.shared is not None
    first, second = torch.randint(0, 60, (2, 1, 9), generator=torch.Generator().manual_seed(0))
    head = model.lm_head(model.get_input_embeddings()(torch.cat([first, second])))
    assert torch.equal(head[:1], model.lm_head(model.get_input_embeddings()(first)))


@pytest.mark.parametrize("replace", [prepack_linears, quantize_linears_int8])
def test_models_that_are_refused_stay_unchanged(replace: Callable[[nn.Module], int]) -> None:
    if replace is prepack_linears and not linear_kernels()["prepacked"]:
        pytest.skip("this torch has no MKL")
    half = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"but 1\.weight is torch\.bfloat16 on cpu: load it with"):
        replace(half)
    meta = nn.Sequential(nn.Linear(4, 4, device="meta"))
    with pytest.raises(ValueError, match=r"but 0\.weight is torch\.float32 on meta"):
        replace(meta)
    hooked = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))
    hooked[1][0].register_forward_pre_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"1\.0 has hooks: replace linear layers first"):
        replace(hooked)
    for model in (half, meta, hooked):
        assert type(model[0]) is nn.Linear


@pytest.mark.parametrize("replace", [prepack_linears, quantize_linears_int8])
def test_subclasses_are_left_alone_and_shared_layers_stay_shared(
    replace: Callable[[nn.Module], int],
) -> None:
    if replace is prepack_linears and not linear_kernels()["prepacked"]:
        pytest.skip("this torch has no MKL")

    class Special(nn.Linear):
        pass

    linear = nn.Linear(4, 4)
    model = nn.Sequential(linear, Special(4, 4), linear)
    assert replace(model) == 1
    assert model[0] is model[2]
    assert type(model[1]) is Special
    assert model[0](torch.randn(2, 4)).requires_grad is False


def test_prepack_without_mkl_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    with pytest.raises(ValueError, match="need a torch with MKL: use the stock layers"):
        prepack_linears(nn.Sequential(nn.Linear(2, 2)))
