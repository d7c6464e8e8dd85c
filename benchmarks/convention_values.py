"""The value of each published definition of acceptance and speedup, from the counts of a run.

Letters are those of `benchmarks.conventions`, which says who uses which. None stands for a division
by nothing, such as an acceptance rate without drafts.
"""

from __future__ import annotations

import numpy as np

from benchmarks.convention_counts import Counts, knows_refusals, was_rejected
from benchmarks.statistics import point, ratio


def tau(counts: Counts) -> float | None:
    """E / S."""
    return _over(counts.sum("emitted"), counts.num_steps)


def tau_macro_prompts(counts: Counts) -> float | None:
    """Mean over prompts of E / S; repeats of a prompt are averaged first."""
    method = counts.method
    has_steps = method["steps"] > 0
    return _mean(method["step_tokens"][has_steps] / method["steps"][has_steps])


def tau_macro_requests(counts: Counts) -> float | None:
    """Mean over requests, each with all its turns, of E / S."""
    answers = counts.answers.assign(emitted=counts.answers["tokens"] - 1)
    sums = answers.groupby("request")[["emitted", "steps"]].sum()
    sums = sums[sums["steps"] > 0]
    return _mean((sums["emitted"] / sums["steps"]).to_numpy())


def tau_macro_answers(counts: Counts) -> float | None:
    """Mean over answers of E / S."""
    answers = counts.answers[counts.answers["steps"] > 0]
    return _mean(((answers["tokens"] - 1) / answers["steps"]).to_numpy())


def tokens_per_forward(counts: Counts) -> float | None:
    """N / (S + T): the prefill is a step of one token."""
    return _over(counts.total("tokens"), counts.num_steps + counts.num_answers)


def tokens_per_forward_macro(counts: Counts) -> float | None:
    """Mean over answers of N / (S + 1)."""
    return _mean((counts.answers["tokens"] / (counts.answers["steps"] + 1)).to_numpy())


def tokens_per_step(counts: Counts) -> float | None:
    """N / S."""
    return _over(counts.total("tokens"), counts.num_steps)


def tokens_per_last_index(counts: Counts) -> float | None:
    """N / (S - T): each answer's steps are taken from the last index of a loop that starts at 0."""
    indices = (counts.answers["steps"] - 1).clip(lower=0)
    return _over(counts.total("tokens"), int(indices.sum()))


def accepted_plus_one(counts: Counts) -> float | None:
    """(A + S) / S."""
    return _over(counts.sum("accepted") + counts.num_steps, counts.num_steps)


def accepted_plus_one_drafted(counts: Counts) -> float | None:
    """1 + A / D."""
    rate = _over(counts.sum("accepted"), len(counts.drafted))
    return None if rate is None else 1 + rate


def accepted_per_step(counts: Counts) -> float | None:
    """A / S."""
    return _over(counts.sum("accepted"), counts.num_steps)


def node_rate(counts: Counts) -> float | None:
    """A / P."""
    return _over(counts.sum("accepted"), counts.sum("nodes"))


def node_rate_macro(counts: Counts) -> float | None:
    """Mean over answers with a draft of A / P."""
    sums = counts.drafted.groupby(["request", "turn"])[["accepted", "nodes"]].sum()
    return _mean((sums["accepted"] / sums["nodes"]).to_numpy())


def path_rate(counts: Counts) -> float | None:
    """Depth of kept paths over depth of drafts, both summed over steps."""
    return _over(counts.sum("kept"), counts.sum("depth"))


def coverage(counts: Counts) -> float | None:
    """D / S."""
    return _over(len(counts.drafted), counts.num_steps)


def emitted_first_turns(counts: Counts) -> float | None:
    """E / S of first turns."""
    return tau(counts.first_turns)


def verify_rate_first_turns(counts: Counts) -> float | None:
    """E / (P + S) of first turns."""
    first = counts.first_turns
    return _over(first.sum("emitted"), first.sum("nodes") + first.num_steps)


def alpha(counts: Counts) -> float | None:
    """Accepted draft tokens of the kept path over those of it that were looked at.

    Per step these are the kept ones and, if the draft went deeper, one refusal: the maximum
    likelihood estimate of the i.i.d. model (Leviathan et al. 2023, section 3.1). Of a tree it is
    the chance that some child is kept, not that a given one is.
    """
    if not knows_refusals(counts.steps):
        return None
    kept = counts.sum("kept")
    return _over(kept, kept + int(was_rejected(counts.steps).sum()))


def predicted_tau(counts: Counts) -> float | None:
    """Mean over steps of (1 - alpha^(K+1)) / (1 - alpha), K being the depth of the step's draft.

    Leviathan et al. 2023, equation 1, where K is the same in all steps.
    """
    rate = alpha(counts)
    if rate is None:
        return None
    depths = counts.steps["depth"].to_numpy()
    # A sum of powers: the closed form divides by zero where everything is accepted.
    expected = np.cumsum(rate ** np.arange(depths.max() + 1))[depths]
    return _mean(expected)


def conditional_acceptance(counts: Counts, position: int) -> float | None:
    """P(kept at a depth | kept above it and drafted there), without steps cut before it."""
    steps = counts.steps
    if not knows_refusals(steps):
        return None
    kept = int((steps["kept"] >= position).sum())
    refused = int((was_rejected(steps) & (steps["kept"] == position - 1)).sum())
    return _over(kept, kept + refused)


def joint_acceptance(counts: Counts, position: int) -> float | None:
    """Share of the steps with a draft whose kept path reached a depth."""
    drafted = counts.drafted
    return _over(int((drafted["kept"] >= position).sum()), len(drafted))


def draft_cost(counts: Counts) -> float | None:
    """Time of propose and build over time of target forwards, both summed."""
    if not len(counts.drafted):
        return None
    return _over(counts.total("draft_ns"), counts.total("forward_ns"))


def speedup_of_times(counts: Counts) -> float | None:
    """Vanilla's wall time over the method's, both summed over prompts."""
    return _over(counts.vanilla["wall_ns"].sum(), counts.method["wall_ns"].sum())


def speedup_of_mean_rates(counts: Counts) -> float | None:
    """Mean over prompts of tokens per second, the method's over vanilla's."""
    rates = [arm["output_tokens"] / arm["wall_ns"] for arm in (counts.method, counts.vanilla)]
    return point(np.stack(rates, axis=1), ratio)


def _over(numerator: float, denominator: float) -> float | None:
    return float(numerator / denominator) if denominator else None


def _mean(values: np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None
