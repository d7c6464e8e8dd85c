"""Datastores of the real model: lossless methods on them repeat vanilla's ids, SENSE is bounded."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import pytest

from benchmarks.datasets import DATASETS
from benchmarks.datastores import provide_datastore
from configs import composed
from methods.build import build_law, build_method, build_model, build_vanilla
from methods.cache import cache_root
from methods.decoding import Method, decode
from methods.generation import Generation, StopRule
from methods.sampling import SamplingLaw
from methods.targets.loading import LoadedModel
from methods.targets.smollm2 import FOLDER_NAME, ensure_smollm2
from primitives.random_source import TorchRandom

pytestmark = pytest.mark.slow
NUM_TOKENS = 64
NUM_PROMPTS = 8
"""Every third of the test split, so that all categories are among them."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The cached model, and no cached datastore."""
    folder = tmp_path_factory.mktemp("cache")
    ensure_smollm2()
    (folder / FOLDER_NAME).symlink_to(cache_root() / FOLDER_NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SD_PRIMITIVES_CACHE", str(folder))
        yield


@functools.cache
def model() -> LoadedModel:
    return build_model(composed("model.device=cpu")["model"])


@functools.cache
def method(*overrides: str) -> Method:
    config = composed(*overrides)
    built = build_method(config, build_law(config))
    assert built.retriever is not None
    built.retriever.attach(provide_datastore(config, model(), progress=False).store)
    return built


@functools.cache
def prompts() -> list[list[int]]:
    found = DATASETS.create("quickstart").load("test").prompts[::3]
    assert len(found) == NUM_PROMPTS
    return [model().codec.encode([("user", prompt.turns[0])]) for prompt in found]


def answer(prompt: Sequence[int], method: Method) -> Generation:
    return decode(
        prompt,
        target=model().target,
        method=method,
        stop=StopRule(max_new_tokens=NUM_TOKENS, eos_ids=model().target.eos_ids),
        law=SamplingLaw(),
        random=TorchRandom.from_seed(0),
    )


@functools.cache
def vanilla_ids(number: int) -> tuple[int, ...]:
    return answer(prompts()[number], build_vanilla(SamplingLaw())).output_ids


@pytest.mark.parametrize("name", ["rest", "dresd", "sen_greedy"])
def test_lossless_methods_repeat_vanillas_ids(name: str) -> None:
    num_tokens = num_steps = 0
    for number, prompt in enumerate(prompts()):
        generation = answer(prompt, method(f"method={name}"))
        assert generation.output_ids == vanilla_ids(number)
        num_tokens += len(generation.output_ids) - 1
        num_steps += len(generation.steps)
    assert num_tokens > 1.05 * num_steps  # Drafts are accepted, not just harmless.


def test_sense_with_a_closed_gate_is_greedy() -> None:
    closed = method("method=sense", "verifier.gamma=1")
    for number in range(0, NUM_PROMPTS, 2):
        assert answer(prompts()[number], closed).output_ids == vanilla_ids(number)


def test_regret_of_sense_stays_below_the_papers_bound_without_con() -> None:
    steps = [
        step
        for prompt in prompts()[::2]
        for step in answer(prompt, method("method=sense", "verifier.use_con=false")).steps
    ]
    num_tokens = sum(step.num_output for step in steps)
    regrets = [regret for step in steps for regret in step.regrets]
    bounds = [bound for step in steps for bound in step.regret_bounds]
    share = sum(bound > 0 for bound in bounds) / num_tokens
    assert 0 < sum(regrets) / num_tokens <= share * max(bounds)
