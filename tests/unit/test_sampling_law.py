"""Temperature, top-k and top-p, against the warpers of transformers."""

from __future__ import annotations

import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from methods.sampling import SamplingLaw


def random_logits(seed: int, *, has_ties: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(7, 40, generator=generator, dtype=torch.float64) * 3
    return logits.round() if has_ties else logits


def warped(logits: torch.Tensor, law: SamplingLaw) -> torch.Tensor:
    """What transformers' `generate` makes of the logits."""
    processors = LogitsProcessorList([TemperatureLogitsWarper(law.temperature)])
    if law.top_k:
        processors.append(TopKLogitsWarper(law.top_k))
    if law.top_p < 1.0:
        processors.append(TopPLogitsWarper(law.top_p))
    return processors(torch.zeros(len(logits), 1, dtype=torch.int64), logits)


@pytest.mark.parametrize("temperature", [1.0, 0.3, 2.5])
@pytest.mark.parametrize("top_k", [0, 1, 5, 40, 100])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3, 1e-6])
def test_same_probabilities_as_transformers(temperature: float, top_k: int, top_p: float) -> None:
    law = SamplingLaw(temperature=temperature, top_k=top_k, top_p=top_p)
    for seed in range(3):
        logits = random_logits(seed)
        ours, theirs = law.apply(logits).softmax(-1), warped(logits, law).softmax(-1)
        assert torch.equal(ours > 0, theirs > 0)
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("top_k", [0, 1, 5])
@pytest.mark.parametrize("top_p", [1.0, 0.7])
def test_ties_differ_at_most_in_which_of_the_tied_tokens_is_kept(top_k: int, top_p: float) -> None:
    """Top-k keeps all tokens equal to the k-th; of tokens tied at the nucleus' edge, either may."""
    law = SamplingLaw(temperature=1.0, top_k=top_k, top_p=top_p)
    for seed in range(5):
        logits = random_logits(seed, has_ties=True)
        ours, theirs = law.apply(logits).softmax(-1), warped(logits, law).softmax(-1)
        if top_p == 1.0:
            assert torch.equal(ours > 0, theirs > 0)
        assert torch.allclose(ours.sort(-1).values, theirs.sort(-1).values, rtol=0, atol=1e-12)


def test_tiny_temperature_is_finite_and_greedy() -> None:
    logits = random_logits(0)
    for temperature in (1e-6, 1e-300, 5e-324):
        probs = SamplingLaw(temperature=temperature).apply(logits).softmax(-1)
        assert torch.isfinite(probs).all()
        assert torch.equal(probs.argmax(-1), logits.argmax(-1))
        assert (probs.amax(-1) == 1).all()


def test_the_nucleus_is_the_smallest_set_that_reaches_its_mass() -> None:
    logits = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64).log()
    kept = {
        p: SamplingLaw(temperature=1.0, top_p=p).apply(logits).exp() > 0 for p in (0.4, 0.5, 0.6)
    }
    assert kept[0.4].tolist() == kept[0.5].tolist() == [False, True, False]
    assert kept[0.6].tolist() == [True, True, False]  # Of two tied tokens the smaller id stays.


def test_rows_are_treated_alone() -> None:
    law, logits = SamplingLaw(temperature=0.7, top_k=4, top_p=0.8), random_logits(1)
    assert torch.equal(law.apply(logits), torch.stack([law.apply(row) for row in logits]))


def test_greedy_passes_logits_in_float32_or_better() -> None:
    logits = random_logits(2)
    assert SamplingLaw().apply(logits) is logits
    assert SamplingLaw().apply(logits.bfloat16()).dtype == torch.float32
    assert SamplingLaw(temperature=0.5).apply(logits.half()).dtype == torch.float64


def test_input_is_left_alone() -> None:
    logits = random_logits(3)
    before = logits.clone()
    SamplingLaw(temperature=0.5, top_k=3, top_p=0.5).apply(logits)
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -0.1}, "temperature must be ≥ 0 and finite, got -0.1"),
        ({"temperature": float("inf")}, "temperature must be ≥ 0 and finite, got inf"),
        ({"temperature": float("nan")}, "temperature must be ≥ 0 and finite, got nan"),
        ({"temperature": 1.0, "top_k": -1}, r"top_k must be ≥ 0 \(0 keeps all tokens\), got -1"),
        ({"temperature": 1.0, "top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
        ({"temperature": 1.0, "top_p": 1.1}, r"top_p must be in \(0, 1\], got 1.1"),
        ({"top_k": 5}, "top_k and top_p have no effect at temperature=0"),
        ({"top_p": 0.5}, "top_k and top_p have no effect at temperature=0"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingLaw(**fields)
