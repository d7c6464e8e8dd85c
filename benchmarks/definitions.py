"""Every metric that a run may report: its unit and its definition.

An id names one way of counting. A metric whose name has a part behind a point (`phase_share.build`)
is defined under the part before it; `accept@1`, `accept@2` ... under `accept@d`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """How a metric is counted.

    Attributes:
        unit: Of its value.
        definition_id: Changes whenever the counting does.
        text: The counting, in words.
    """

    unit: str
    definition_id: str
    text: str


_TAU = Definition(
    "tokens/step",
    "tau.micro.emitted_per_forward.eos_clipped.no_prefill",
    "Output tokens but the prefill's, over decoding steps, both summed over all prompts; steps "
    "without a draft count, tokens behind EOS or the budget do not.",
)
_RATE = Definition(
    "tokens/s",
    "rate.sum_of_tokens_per_sum_of_times.prefill_included",
    "Output tokens over wall time, both summed over all prompts.",
)
_LENGTH = Definition(
    "tokens", "output_tokens.mean_per_prompt", "Output tokens of all turns, mean over prompts."
)

_REPETITION = Definition(
    "share",
    "repetition.share_of_repeated_4grams.mean_per_prompt",
    "Share of an answer's 4-grams of tokens that it had before, mean over turns and prompts.",
)

_CUT = Definition(
    "share",
    "length_share.turns_ended_by_the_budget",
    "Share of answers that ended at max_new_tokens and not by themselves.",
)
_SCORE = Definition(
    "score",
    "score.mean_over_scored_prompts",
    "Mean task score of the answers, over the prompts that can be scored; the part behind the "
    "point says what is scored.",
)

DEFINITIONS: dict[str, Definition] = {
    "tau": _TAU,
    "vanilla_tau": _TAU,
    "tau_macro": Definition(
        "tokens/step",
        "tau.macro_prompts.emitted_per_forward.eos_clipped.no_prefill",
        "As tau, but the mean over prompts of each prompt's own ratio.",
    ),
    "strict_tau": Definition(
        "tokens/step",
        "tau_strict.micro.exact_match_on_the_same_tree.eos_clipped.no_prefill",
        "As tau, counting in each step what exact match would have kept of the same draft tree.",
    ),
    "draft_coverage": Definition(
        "share", "draft_coverage.micro.share_of_steps", "Share of steps with a draft node."
    ),
    "node_acceptance_rate": Definition(
        "share", "node_acceptance.micro.accepted_per_draft_node", "Accepted over draft nodes."
    ),
    "accept@d": Definition(
        "share",
        "accept_at_depth.joint.share_of_steps",
        "Share of all steps whose kept path reached this depth.",
    ),
    "accepted_by_reason": Definition(
        "share", "accepted_by_reason.micro", "Share of accepted nodes kept for this reason."
    ),
    "compression": Definition(
        "share",
        "compression.one_minus_prefix_tree_nodes_per_candidate_token",
        "1 - nodes of the candidates' prefix tree, before the node budget cuts it, over their "
        "tokens, both summed over all steps.",
    ),
    "regret": Definition(
        "nats/token",
        "regret.mean_log_probability_gap_to_argmax.per_step_token",
        "log p(argmax) - log p(token) under the target, given the text as it was output; summed "
        "over kept nodes, over the output tokens of all steps.",
    ),
    "regret_bound": Definition(
        "nats/token",
        "regret_bound.share_of_gated_tokens_times_largest_gap",
        "Kept nodes where the rule is open, per output token of all steps, x the largest "
        "bound of the rule among them: log p(1st) - log p(k-th) for SENSE (appendix D), where it "
        "bounds the regret if only top-k tokens pass, that is without con.",
    ),
    "rouge_l": Definition(
        "F1",
        "rouge_l.against_vanilla.words.mean_per_prompt",
        "ROUGE-L F1 of the words of the method's answers against vanilla's, mean over turns and "
        "prompts.",
    ),
    "repetition": _REPETITION,
    "vanilla_repetition": _REPETITION,
    "length_share": _CUT,
    "vanilla_length_share": _CUT,
    "score": _SCORE,
    "vanilla_score": _SCORE,
    "relative_score": Definition(
        "ratio",
        "score.mean_over_vanilla_mean",
        "The method's mean task score over vanilla's, on the same prompts.",
    ),
    "score_change": Definition(
        "score",
        "score.mean_difference_to_vanilla",
        "The method's mean task score minus vanilla's, on the same prompts; its interval decides "
        "whether a method is called better or worse.",
    ),
    "control_speedup": Definition(
        "ratio",
        "speedup.vanilla_over_vanilla.prefill_included",
        "Vanilla's wall time over that of its own second answer, on the control prompts.",
    ),
    "identical_to_control": Definition(
        "prompts",
        "identity.vanilla_again.token_ids_of_all_turns",
        "Prompts that vanilla answered twice with the same ids.",
    ),
    "draft_nodes": Definition("nodes/step", "draft_nodes.micro.per_step", "Draft nodes per step."),
    "speedup": Definition(
        "ratio",
        "speedup.sum_of_times.prefill_included",
        "Vanilla's wall time over the method's, both summed over the same prompts.",
    ),
    "speedup_rate": Definition(
        "ratio",
        "speedup.tokens_per_second.prefill_included",
        "The method's tokens per second over vanilla's, on the same prompts.",
    ),
    "decode_speedup": Definition(
        "ratio",
        "speedup.sum_of_times.prefill_excluded",
        "As speedup, without the time of prefills.",
    ),
    "decode_speedup_rate": Definition(
        "ratio",
        "speedup.tokens_per_second.prefill_excluded",
        "As speedup_rate, without the time and tokens of prefills.",
    ),
    "speedup_spec_bench": Definition(
        "ratio",
        "speedup.ratio_of_mean_prompt_rates.prefill_included",
        "Mean over prompts of the method's tokens per second, over the same mean for vanilla.",
    ),
    "speedup_geometric": Definition(
        "ratio",
        "speedup.geometric_mean_over_prompts.prefill_included",
        "Geometric mean over prompts of vanilla's wall time over the method's.",
    ),
    "tokens_per_second": _RATE,
    "vanilla_tokens_per_second": _RATE,
    "generate_tokens_per_second": _RATE,
    "vanilla_over_generate": Definition(
        "ratio",
        "rate_ratio.vanilla_over_library_generate.prefill_included",
        "Vanilla's tokens per second over those of the library's own generate, same prompts.",
    ),
    "output_tokens": _LENGTH,
    "vanilla_output_tokens": _LENGTH,
    "phase_share": Definition(
        "share",
        "phase_share.of_decode_time",
        "Share of this phase in the method's time after the prefill.",
    ),
    "overhead": Definition(
        "share",
        "overhead.outside_forward.of_decode_time",
        "Share of the method's time after the prefill that is not spent in target forwards.",
    ),
    "identical_outputs": Definition(
        "prompts",
        "identity.vanilla.token_ids_of_all_turns",
        "Prompts whose output ids equal vanilla's, in all turns and repeats.",
    ),
    "identical_to_generate": Definition(
        "prompts",
        "identity.library_generate.token_ids_of_all_turns",
        "Prompts where vanilla's output ids equal those of the library's own generate.",
    ),
    "peak_memory": Definition(
        "bytes",
        "memory.peak_since_start_of_run",
        "Peak memory of the process or device from the warm-up to the last answer, model included.",
    ),
}


def define(name: str) -> Definition:
    """The definition of a metric.

    Raises:
        KeyError: If there is none.
    """
    return DEFINITIONS["accept@d" if name.startswith("accept@") else name.partition(".")[0]]
