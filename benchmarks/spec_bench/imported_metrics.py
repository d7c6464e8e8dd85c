"""Metrics of a pair of answer files, in the form of `benchmarks.metrics.summarize`.

What such files do not hold (drafts, the prefill's time, token ids) is None, or counted on what they
do hold under a definition of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.definitions import Definition, define
from benchmarks.metric_values import Metrics, count, entry, metric
from benchmarks.sequences import shared_prefix
from benchmarks.spec_bench.pairs import METHOD, VANILLA, Pairs
from benchmarks.spec_bench.tasks import task_of
from benchmarks.statistics import ratio, ratio_of_ratios

TAU_OF_LENGTHS = Definition(
    "tokens/step",
    "tau.micro.accept_lengths.as_published",
    "Mean of accept_lengths over all steps of all questions, as the file has them. They sum to all "
    "output tokens, so that the prefill's token is counted: as a step of its own in files of "
    "chain drafters, as part of the first step in those of most tree drafters.",
)
TAU_OF_STEPS = Definition(
    "tokens/step",
    "tau.micro.new_tokens_per_decoding_step.as_published",
    "new_tokens over decoding_steps, both summed over all questions, of a file without "
    "accept_lengths in some row; whether the prefill is a step, its author knows.",
)
TAU_MACRO_OF_LENGTHS = Definition(
    "tokens/step",
    "tau.macro_prompts.accept_lengths.as_published",
    "Mean over questions of the mean of each question's accept_lengths.",
)
TAU_MACRO_OF_STEPS = Definition(
    "tokens/step",
    "tau.macro_prompts.new_tokens_per_decoding_step.as_published",
    "Mean over questions of new_tokens over decoding_steps.",
)
SAME_TEXT = Definition(
    "prompts",
    "identity.vanilla.text_of_all_turns",
    "Questions whose text equals vanilla's in all turns.",
)
UNKNOWN = ("draft_coverage", "node_acceptance_rate", "decode_speedup", "decode_speedup_rate")
"""What tables show of a run and of its categories, and no answer file tells."""
UNKNOWN_OF_RUN = (
    "strict_tau", "repetition", "vanilla_repetition", "length_share", "vanilla_length_share",
)  # fmt: skip
UNKNOWN_OF_RELAXED = ("regret", "rouge_l")


def summarize_pairs(pairs: Pairs, *, is_greedy: bool, is_lossless: bool) -> dict[str, Any]:
    """All metrics, over the questions that both files answered.

    Args:
        pairs: The two files.
        is_greedy: Whether texts can be compared.
        is_lossless: Whether the method is said to keep the target's output.

    Returns:
        As `benchmarks.metrics.summarize`, and `tasks`: the metrics of `categories` by task of
        Spec-Bench. Differences are given in characters. The primary speedup is Spec-Bench's own.
    """
    frame = pairs.frame
    has_any = len(frame) > 0
    has_equal_lengths = bool(
        not has_any or (frame[f"{METHOD}tokens"] == frame[f"{VANILLA}tokens"]).all()
    )
    metrics = _main(frame) | _whole(frame) if has_any else {}
    if has_any and is_greedy:
        is_same = frame[f"{METHOD}turns"] == frame[f"{VANILLA}turns"]
        metrics |= count("identical_outputs", dict(enumerate(is_same.tolist())), SAME_TEXT)
    if has_any and not is_lossless:
        metrics |= _unknown(UNKNOWN_OF_RELAXED, len(frame))
    return {
        "num_prompts": pairs.num_questions,
        "num_measured": len(frame),
        "num_failed": pairs.num_failed,
        "primary_speedup": "speedup_spec_bench",
        "has_equal_lengths": has_equal_lengths,
        "metrics": metrics,
        "categories": _grouped(frame, frame["category"]) if has_any else {},
        "tasks": _grouped(frame, frame["category"].map(task_of)) if has_any else {},
        "failures": pairs.failures,
        "differences": _differences(frame) if is_greedy else [],
        "unstable_prompts": [],
        "definitions": _texts(metrics),
    }


def _main(frame: pd.DataFrame) -> Metrics:
    """What tables show, of all questions or of one category."""
    m, v = _numbers(frame, METHOD), _numbers(frame, VANILLA)
    return (
        _tau("tau", m)
        | metric("tokens_per_second", [m["tokens"], m["seconds"]], ratio)
        | metric("vanilla_tokens_per_second", [v["tokens"], v["seconds"]], ratio)
        | metric("speedup", [v["seconds"], m["seconds"]], ratio)
        | metric(
            "speedup_rate", [m["tokens"], m["seconds"], v["tokens"], v["seconds"]], ratio_of_ratios
        )
        | metric(
            "speedup_spec_bench", [m["tokens"] / m["seconds"], v["tokens"] / v["seconds"]], ratio
        )
        | _unknown(UNKNOWN, len(frame))
    )


def _whole(frame: pd.DataFrame) -> Metrics:
    """What is counted over all questions only."""
    m, v = _numbers(frame, METHOD), _numbers(frame, VANILLA)
    one = np.ones(len(frame))
    return (
        _tau("vanilla_tau", v)
        | _tau_macro(m)
        | metric("output_tokens", [m["tokens"], one], ratio)
        | metric("vanilla_output_tokens", [v["tokens"], one], ratio)
        | _unknown(UNKNOWN_OF_RUN, len(frame))
    )


def _unknown(names: Sequence[str], num_prompts: int) -> Metrics:
    """Metrics without a value."""
    metrics: Metrics = {}
    for name in names:
        metrics |= entry(name, None, None, num_prompts)
    return metrics


def _tau(name: str, arm: Mapping[str, np.ndarray]) -> Metrics:
    if not np.isnan(arm["num_lengths"]).any():
        return metric(name, [arm["lengths_sum"], arm["num_lengths"]], ratio, TAU_OF_LENGTHS)
    return metric(name, [arm["tokens"], arm["steps"]], ratio, TAU_OF_STEPS)


def _tau_macro(arm: Mapping[str, np.ndarray]) -> Metrics:
    one = np.ones(len(arm["tokens"]))
    if not np.isnan(arm["num_lengths"]).any():
        columns = [arm["lengths_sum"] / arm["num_lengths"], one]
        return metric("tau_macro", columns, ratio, TAU_MACRO_OF_LENGTHS)
    return metric("tau_macro", [arm["tokens"] / arm["steps"], one], ratio, TAU_MACRO_OF_STEPS)


def _numbers(frame: pd.DataFrame, prefix: str) -> dict[str, np.ndarray]:
    names = ("tokens", "seconds", "steps", "lengths_sum", "num_lengths")
    return {name: frame[f"{prefix}{name}"].to_numpy(dtype=np.float64) for name in names}


def _grouped(frame: pd.DataFrame, keys: pd.Series[Any]) -> dict[str, Metrics]:
    return {str(key): _main(group) for key, group in frame.groupby(keys, sort=False)}


def _differences(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """First differing character of each question whose text is not vanilla's."""
    differences = []
    for question_id, row in frame.iterrows():
        pairs = zip(row[f"{VANILLA}turns"], row[f"{METHOD}turns"], strict=True)
        turns = [turn for turn, (vanilla, method) in enumerate(pairs) if vanilla != method]
        if turns:
            texts = (row[f"{prefix}turns"][turns[0]] for prefix in (VANILLA, METHOD))
            place = {"turn": turns[0], "position": shared_prefix(*texts), "unit": "characters"}
            differences.append({"prompt_id": str(question_id), "repeat": 0, **place})
    return differences


def _texts(metrics: Metrics) -> dict[str, str]:
    own = (TAU_OF_LENGTHS, TAU_OF_STEPS, TAU_MACRO_OF_LENGTHS, TAU_MACRO_OF_STEPS, SAME_TEXT)
    texts = {definition.definition_id: definition.text for definition in own}
    texts = {define(name).definition_id: define(name).text for name in metrics} | texts
    used = {metric["definition"] for metric in metrics.values()}
    return {definition_id: texts[definition_id] for definition_id in texts if definition_id in used}
