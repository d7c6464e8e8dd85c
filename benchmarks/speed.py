"""Speed of the loop itself: against transformers' `generate`, by phase, and by rows per forward.

All arms of a comparison run in one process on one model object, in rotated order; what is reported
is the median over rounds of ratios taken within a round, so that a drift of the machine cancels.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.clock import PhaseClock, no_garbage_collection
from methods.build import build_method, build_vanilla
from methods.decoding import Method, decode
from methods.generation import StopRule
from methods.sampling import SamplingLaw
from methods.targets.base import TargetModel
from methods.targets.huggingface import HuggingFaceTarget
from primitives.random_source import TorchRandom
from primitives.types import DraftTree

GREEDY = SamplingLaw()
NUM_DRAFT_TOKENS = 10
MAX_NGRAM = 2
"""Both at transformers' defaults, so that `generate(prompt_lookup_num_tokens=10)` drafts alike."""

Answer = Callable[[Sequence[int]], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Arms on the same prompts.

    Attributes:
        seconds: Per arm, the time for all prompts in each round.
        num_tokens: Per arm, output tokens for all prompts.
        num_different: Per arm, prompts whose ids differ from those of the first arm.
    """

    seconds: Mapping[str, list[float]]
    num_tokens: Mapping[str, int]
    num_different: Mapping[str, int]

    def tokens_per_second(self, arm: str) -> float:
        """Median over rounds."""
        return self.num_tokens[arm] / statistics.median(self.seconds[arm])

    def speedup(self, arm: str, over: str) -> tuple[float, float, float]:
        """Median, least and largest ratio of tokens per second, taken within rounds."""
        scale = self.num_tokens[arm] / self.num_tokens[over]
        pairs = zip(self.seconds[over], self.seconds[arm], strict=True)
        ratios = [scale * theirs / ours for theirs, ours in pairs]
        return statistics.median(ratios), min(ratios), max(ratios)


def prompt_lookup_method() -> Method:
    """Prompt lookup at the settings of transformers."""
    config = {
        "method": {"name": "pld", "node_budget": NUM_DRAFT_TOKENS, "max_candidates": 1},
        "retriever": {
            "name": "prompt_lookup",
            "max_ngram": MAX_NGRAM,
            "num_tokens": NUM_DRAFT_TOKENS,
        },
        "tree_builder": {"name": "chain"},
        "verifier": {"name": "greedy"},
        "datastore": {"kind": None},
    }
    return build_method(config, GREEDY)


def generate_arms(target: HuggingFaceTarget, max_new_tokens: int) -> dict[str, Answer]:
    """The loop and the library, each without drafts and with prompt lookup."""
    stop = StopRule(max_new_tokens=max_new_tokens, eos_ids=target.eos_ids)

    def through_loop(method: Method) -> Answer:
        def answer(prompt_ids: Sequence[int]) -> Sequence[int]:
            random = TorchRandom.from_seed(0)
            return decode(
                prompt_ids, target=target, method=method, stop=stop, law=GREEDY, random=random
            ).output_ids

        return answer

    def through_library(**kwargs: Any) -> Answer:
        return lambda ids: stop.clip(target.generate(ids, max_new_tokens, **kwargs), 0)[0]

    return {
        "vanilla": through_loop(build_vanilla(GREEDY)),
        "generate": through_library(),
        "pld": through_loop(prompt_lookup_method()),
        "generate+pld": through_library(prompt_lookup_num_tokens=NUM_DRAFT_TOKENS),
    }


def compare(
    arms: Mapping[str, Answer], prompts: Sequence[Sequence[int]], num_rounds: int
) -> Comparison:
    """Times all arms on all prompts, round by round, after one warm-up of each."""
    names = list(arms)
    outputs = {name: [tuple(arms[name](prompt)) for prompt in prompts] for name in names}
    seconds: dict[str, list[float]] = {name: [0.0] * num_rounds for name in names}
    with no_garbage_collection():
        for round_index in range(num_rounds):
            for prompt_index, prompt in enumerate(prompts):
                shift = (round_index + prompt_index) % len(names)
                for name in names[shift:] + names[:shift]:
                    start = time.perf_counter()
                    arms[name](prompt)
                    seconds[name][round_index] += time.perf_counter() - start
    first = outputs[names[0]]
    return Comparison(
        seconds=seconds,
        num_tokens={name: sum(map(len, outputs[name])) for name in names},
        num_different={
            name: sum(a != b for a, b in zip(outputs[name], first, strict=True)) for name in names
        },
    )


def row_curve(
    target: TargetModel,
    prompt_ids: Sequence[int],
    num_rows: Sequence[int],
    num_rounds: int,
    synchronize: Callable[[], None] = lambda: None,
) -> dict[int, float]:
    """Median milliseconds of a tree forward by its number of rows, behind one prompt."""
    trees = {k: DraftTree.from_nodes([5] * k, range(-1, k - 1)) for k in num_rows}
    times: dict[int, list[float]] = {k: [] for k in num_rows}
    target.prefill(prompt_ids, reserve=2 * num_rounds * len(num_rows) + max(num_rows))
    with no_garbage_collection():
        for round_index in range(num_rounds + 1):
            for k, tree in trees.items():
                synchronize()
                start = time.perf_counter()
                target.forward_tree(tree)
                synchronize()
                elapsed = time.perf_counter() - start
                target.commit([0])
                if round_index:  # The first round only warms up.
                    times[k].append(1000 * elapsed)
    return {k: statistics.median(values) for k, values in times.items()}


def prefill_peaks(
    target: TargetModel, num_tokens: Sequence[int], peak_bytes: Callable[[], int]
) -> dict[int, int]:
    """Peak memory of the process in bytes after a prefill of each length, shortest first.

    A peak never falls, so that the growth from one length to the next is the cost of the longer
    prompt: twice the tokens must not cost four times the memory.
    """
    peaks = {}
    for length in sorted(num_tokens):
        target.prefill([5 + i % 1000 for i in range(length)], reserve=1)
        peaks[length] = peak_bytes()
    return peaks


def phase_shares(
    target: TargetModel, method: Method, prompts: Sequence[Sequence[int]], max_new_tokens: int
) -> dict[str, float]:
    """Share of step time per phase of a method; prefill left out."""
    totals: dict[str, int] = {}
    stop = StopRule(max_new_tokens=max_new_tokens, eos_ids=target.eos_ids)
    for prompt_ids in prompts:
        clock = PhaseClock()
        decode(
            prompt_ids,
            target=target,
            method=method,
            stop=stop,
            law=GREEDY,
            random=TorchRandom.from_seed(0),
            probe=clock,
        )
        for phase, nanoseconds in clock.stop().phase_ns.items():
            totals[phase] = totals.get(phase, 0) + nanoseconds
    totals.pop("prefill", None)
    return {phase: value / sum(totals.values()) for phase, value in totals.items()}
