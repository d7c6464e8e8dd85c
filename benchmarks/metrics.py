"""Metrics: pure functions of the rows of a run, each value with its definition and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.clock import CLOCK_PHASES
from benchmarks.definitions import define
from benchmarks.metric_values import Metrics, count, entry, metric
from benchmarks.prompt_table import ArmCounts, PromptTable, first_difference
from benchmarks.quality import rouge_l
from benchmarks.records import Request
from benchmarks.scoring.score_rows import ScoreRow
from benchmarks.statistics import exp_ratio, ratio, ratio_of_ratios

NS_PER_S = 1e9
STEP_PHASES = tuple(phase for phase in CLOCK_PHASES if phase != "prefill")


def summarize(
    requests: Sequence[Request],
    *,
    is_greedy: bool,
    is_lossless: bool,
    scores: Sequence[ScoreRow] = (),
) -> dict[str, Any]:
    """All metrics of a run, over the prompts on which both vanilla and method succeeded.

    Args:
        requests: Rows of a run, complete or not.
        is_greedy: Whether ids can be compared between arms and repeats.
        is_lossless: Whether the method's output follows vanilla's.
        scores: Task scores of the answers, if they were scored.

    Returns:
        `num_prompts`, `num_measured`, `num_failed`; `primary_speedup`, the name of a metric: of
        times where the lengths of answers are bound to be equal, else of tokens per second;
        `has_equal_lengths`; `metrics`; `categories`, the main metrics by category; `failures`;
        `differences` from vanilla and `unstable_prompts`, whose repeats differ (greedy only);
        `definitions`, texts by id.
    """
    table = PromptTable.from_requests(requests)
    metrics = _all_metrics(table, requests, is_greedy) if table.categories else {}
    if table.categories and not is_lossless:
        metrics |= _quality(table, requests)
    metrics |= score_metrics(scores, list(table.categories))
    lengths = (table.vanilla["output_tokens"], table.method["output_tokens"])
    has_equal_lengths = bool(np.array_equal(*lengths))
    is_of_times = is_lossless and is_greedy and has_equal_lengths
    return {
        "num_prompts": len({request.prompt_id for request in requests}),
        "num_measured": len(table.categories),
        "num_failed": len(table.failed),
        "primary_speedup": "speedup" if is_of_times else "speedup_rate",
        "has_equal_lengths": has_equal_lengths,
        "metrics": metrics,
        "categories": _by_category(table, scores),
        "failures": _failures(requests),
        "differences": _differences(table) if is_greedy else [],
        "unstable_prompts": table.unstable() if is_greedy else [],
        "definitions": {define(name).definition_id: define(name).text for name in metrics},
    }


def _all_metrics(table: PromptTable, requests: Sequence[Request], is_greedy: bool) -> Metrics:
    vanilla, method = table.vanilla, table.method
    metrics = _main(vanilla, method) | _acceptance(vanilla, method) | _time(vanilla, method)
    metrics |= _guards(vanilla, method)
    if is_greedy:
        metrics |= count("identical_outputs", table.identical("vanilla", "method"))
    if len(table.arms["generate"]):
        metrics |= _beside_generate(table)
    if len(table.arms["control"]):
        metrics |= _beside_control(table)
    peaks = [r.peak_memory_bytes for r in requests if r.peak_memory_bytes is not None]
    if peaks:
        metrics |= entry("peak_memory", max(peaks), None, len(table.categories))
    return metrics


def _main(vanilla: ArmCounts, method: ArmCounts) -> Metrics:
    """What the tables show, of all prompts or of one category."""
    v, m = vanilla, method
    return (
        metric("tau", [m["step_tokens"], m["steps"]], ratio)
        | metric("draft_coverage", [m["draft_steps"], m["steps"]], ratio)
        | metric("node_acceptance_rate", [m["accepted"], m["draft_nodes"]], ratio)
        | metric("tokens_per_second", _rate(m), ratio)
        | metric("vanilla_tokens_per_second", _rate(v), ratio)
        | metric("speedup", [v["wall_ns"], m["wall_ns"]], ratio)
        | metric("speedup_rate", [*_rate(m), *_rate(v)], ratio_of_ratios)
        | metric("decode_speedup", [v["decode_ns"], m["decode_ns"]], ratio)
        | metric(
            "decode_speedup_rate",
            [m["step_tokens"], m["decode_ns"], v["step_tokens"], v["decode_ns"]],
            ratio_of_ratios,
        )
    )


def _acceptance(vanilla: ArmCounts, method: ArmCounts) -> Metrics:
    """What became of drafts, and how long the answers are."""
    v, m, one = vanilla, method, np.ones(len(method))
    has_steps = m["steps"] > 0
    per_prompt = m["step_tokens"][has_steps] / m["steps"][has_steps]
    metrics = (
        metric("vanilla_tau", [v["step_tokens"], v["steps"]], ratio)
        | metric("tau_macro", [per_prompt, np.ones(len(per_prompt))], ratio)
        | metric("strict_tau", [m["strict_tokens"], m["steps"]], ratio)
        | metric("draft_nodes", [m["draft_nodes"], m["steps"]], ratio)
        | metric("compression", [m["saved_tokens"], m["candidate_tokens"]], ratio)
        | metric("output_tokens", [m["output_tokens"], one], ratio)
        | metric("vanilla_output_tokens", [v["output_tokens"], one], ratio)
    )
    for depth in sorted(map(int, m.names("depth"))):
        metrics |= metric(f"accept@{depth}", [m[f"depth:{depth}"], m["steps"]], ratio)
    for reason in sorted(m.names("reason")):
        columns = [m[f"reason:{reason}"], m["accepted"]]
        metrics |= metric(f"accepted_by_reason.{reason}", columns, ratio)
    return metrics


def _quality(table: PromptTable, requests: Sequence[Request]) -> Metrics:
    """What a method that may change the output did to it."""
    m, one = table.method, np.ones(len(table.method))
    similarity = _similarity_to_vanilla(requests, m.prompt_ids)
    metrics = metric("regret", [m["regret"], m["step_tokens"]], ratio) | metric(
        "rouge_l", [similarity, one], ratio
    )
    largest = m["max_regret_bound"].max()
    if largest > 0:
        columns = [m["gated"] * largest, m["step_tokens"]]
        metrics |= metric("regret_bound", columns, ratio)
    return metrics


def _guards(vanilla: ArmCounts, method: ArmCounts) -> Metrics:
    """What makes acceptance cheap: loops, and answers that never end by themselves."""
    metrics: Metrics = {}
    for prefix, arm in (("", method), ("vanilla_", vanilla)):
        metrics |= metric(f"{prefix}repetition", [arm["repetition"], np.ones(len(arm))], ratio)
        metrics |= metric(f"{prefix}length_share", [arm["cut_turns"], arm["turns"]], ratio)
    return metrics


def _similarity_to_vanilla(requests: Sequence[Request], prompt_ids: Sequence[str]) -> np.ndarray:
    """ROUGE-L per prompt, mean over turns and the repeats that both arms answered."""
    turns = {request.key: request.turns for request in requests}
    values: dict[str, list[float]] = {prompt_id: [] for prompt_id in prompt_ids}
    for (prompt_id, repeat, arm), answers in turns.items():
        theirs = turns.get((prompt_id, repeat, "vanilla"))
        if arm == "method" and prompt_id in values and theirs is not None:
            pairs = zip(theirs, answers, strict=True)
            values[prompt_id] += [rouge_l(vanilla.text, turn.text) for vanilla, turn in pairs]
    return np.array([np.mean(values[prompt_id]) for prompt_id in prompt_ids])


def _time(vanilla: ArmCounts, method: ArmCounts) -> Metrics:
    """Other people's speedups, and where the time of a step goes."""
    v, m, one = vanilla, method, np.ones(len(method))
    rates = [m["output_tokens"] / m["wall_ns"], v["output_tokens"] / v["wall_ns"]]
    decode_ns = sum((m[f"phase:{phase}"] for phase in STEP_PHASES), np.zeros(len(m)))
    metrics = (
        metric("speedup_spec_bench", rates, ratio)
        | metric("speedup_geometric", [np.log(v["wall_ns"] / m["wall_ns"]), one], exp_ratio)
        | metric("overhead", [decode_ns - m["phase:forward"], decode_ns], ratio)
    )
    for phase in STEP_PHASES:
        metrics |= metric(f"phase_share.{phase}", [m[f"phase:{phase}"], decode_ns], ratio)
    return metrics


def _beside_generate(table: PromptTable) -> Metrics:
    """Vanilla and the library's own greedy decoding, on the prompts that both answered."""
    generate = table.arms["generate"]
    vanilla = table.vanilla.select(generate.prompt_ids)
    columns = [*_rate(vanilla), *_rate(generate)]
    return (
        metric("generate_tokens_per_second", _rate(generate), ratio)
        | metric("vanilla_over_generate", columns, ratio_of_ratios)
        | count("identical_to_generate", table.identical("vanilla", "generate"))
    )


def _beside_control(table: PromptTable) -> Metrics:
    """Vanilla a second time: how far apart two runs of the same thing are."""
    control = table.arms["control"]
    vanilla = table.vanilla.select(control.prompt_ids)
    return metric("control_speedup", [vanilla["wall_ns"], control["wall_ns"]], ratio) | count(
        "identical_to_control", table.identical("vanilla", "control")
    )


def score_metrics(scores: Sequence[ScoreRow], prompt_ids: Sequence[str]) -> Metrics:
    """Mean score of the method, of vanilla, and their ratio, by what is scored."""
    metrics: Metrics = {}
    for what in dict.fromkeys(row.metric for row in scores):
        arms = {
            arm: _scores_by_prompt(scores, what, arm, prompt_ids) for arm in ("vanilla", "method")
        }
        shared = [p for p in prompt_ids if p in arms["vanilla"] and p in arms["method"]]
        if shared:
            vanilla, method = (np.array([arm[p] for p in shared]) for arm in arms.values())
            one = np.ones(len(shared))
            metrics |= (
                metric(f"score.{what}", [method, one], ratio)
                | metric(f"vanilla_score.{what}", [vanilla, one], ratio)
                | metric(f"relative_score.{what}", [method, vanilla], ratio)
                | metric(f"score_change.{what}", [method - vanilla, one], ratio)
            )
    return metrics


def _scores_by_prompt(
    scores: Sequence[ScoreRow], metric: str, arm: str, prompt_ids: Sequence[str]
) -> dict[str, float]:
    """Mean over repeats."""
    known = set(prompt_ids)
    values: dict[str, list[float]] = {}
    for row in scores:
        if (row.metric, row.arm) == (metric, arm) and row.prompt_id in known:
            values.setdefault(row.prompt_id, []).append(row.value)
    return {prompt_id: float(np.mean(found)) for prompt_id, found in values.items()}


def _rate(arm: ArmCounts) -> list[np.ndarray]:
    """Columns whose ratio is tokens per second."""
    return [arm["output_tokens"], arm["wall_ns"] / NS_PER_S]


def _by_category(table: PromptTable, scores: Sequence[ScoreRow]) -> dict[str, Metrics]:
    categories: dict[str, Metrics] = {}
    for category in dict.fromkeys(table.categories.values()):
        prompt_ids = [p for p, other in table.categories.items() if other == category]
        categories[category] = _main(
            table.vanilla.select(prompt_ids), table.method.select(prompt_ids)
        ) | score_metrics(scores, prompt_ids)
    return categories


def _failures(requests: Sequence[Request]) -> list[dict[str, Any]]:
    return [
        {"prompt_id": r.prompt_id, "arm": r.arm, "repeat": r.repeat, **vars(r.error)}
        for r in requests
        if r.error is not None
    ]


def _differences(table: PromptTable) -> list[dict[str, Any]]:
    """Where the method's ids first differ from vanilla's, by prompt and repeat."""
    return [
        {"prompt_id": prompt_id, "repeat": repeat, **first_difference(ids, other)}
        for (prompt_id, repeat), (ids, other) in table.pairs("vanilla", "method").items()
        if ids != other
    ]
