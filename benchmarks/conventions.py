"""One run under every published definition of acceptance and speedup.

Two papers that print 2.4 may count different things. Here each definition is computed from the same
steps, so that a number of somebody else can be put beside the right one of ours. What a run records
is clipped at EOS and at the budget: conventions that also count tokens behind them are computed
without those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks import convention_values as values
from benchmarks.convention_counts import Counts
from benchmarks.definitions import define
from benchmarks.records import Request

LETTERS = (
    "summed over all answers: S decoding steps, D of them with a draft, T answers with one prefill "
    "each, N output tokens, E = N - T tokens of steps, A accepted and P proposed draft nodes"
)
NUM_POSITIONS = 5
"""Draft positions whose acceptance is shown."""


@dataclass(frozen=True, kw_only=True)
class Convention:
    """One definition and what it gives.

    Attributes:
        name: What its users call it.
        used_by: Who they are.
        value: None where it is not defined, as an acceptance rate without drafts.
        unit: Of the value.
        definition_id: Two conventions that count alike share it.
        formula: In the letters of `LETTERS`.
        trap: What to mind before comparing it with another one.
    """

    name: str
    used_by: str
    value: float | None
    unit: str
    definition_id: str
    formula: str
    trap: str


@dataclass(frozen=True)
class _Rule:
    """A convention before it is applied; fields as in `Convention`."""

    name: str
    used_by: str
    unit: str
    definition_id: str
    formula: str
    trap: str
    value: Callable[[Counts], float | None]

    def apply(self, counts: Counts) -> Convention:
        texts = {name: text for name, text in vars(self).items() if name != "value"}
        has_any = counts.num_answers > 0
        return Convention(value=self.value(counts) if has_any else None, **texts)


def panel(requests: Sequence[Request]) -> list[Convention]:
    """The method of a run under every convention, ours first.

    Args:
        requests: Rows of a run, complete or not. As in its tables, only prompts that both vanilla
            and the method answered count.
    """
    counts = Counts.from_requests(requests)
    return [rule.apply(counts) for rule in (*_LENGTHS, *_RATES, *_positions(), *_TIMES)]


def _id(metric: str) -> str:
    return define(metric).definition_id


_STEP = "tokens/step"
_PREFILL_AS_STEP = "tau.micro.output_tokens_per_forward.prefill_as_step"
_LENGTHS = (
    _Rule(
        "tau", "this project", _STEP, _id("tau"), "E / S",
        "steps without a draft count, the prefill's token does not", values.tau,
    ),
    _Rule(
        "tau, macro", "this project", _STEP, _id("tau_macro"), "mean over prompts of E / S",
        "short answers weigh as much as long ones", values.tau_macro_prompts,
    ),
    _Rule(
        "block efficiency", "Leviathan-line papers", _STEP, _id("tau"), "E / S",
        "a target call with a draft; the prefill is none", values.tau,
    ),
    _Rule(
        "#Mean Accepted Tokens", "Spec-Bench, SAM-Decoding, LogitSpec", _STEP,
        _PREFILL_AS_STEP, "N / (S + T)",
        "mean of accept_lengths as our export writes them, the prefill being a step of 1; tree "
        "methods of the harness have no such step and follow EAGLE's tau",
        values.tokens_per_forward,
    ),
    _Rule(
        "average acceptance length", "EAGLE, tree methods of Spec-Bench", _STEP,
        "tau.micro.accepted_plus_one.no_prefill",
        "(A + S) / S", "counts a bonus token on steps that EOS or the budget ended",
        values.accepted_plus_one,
    ),
    _Rule(
        "new_tokens / idxs", "users of EAGLE's answer files", _STEP,
        "tau.micro.output_tokens_per_last_step_index", "N / (S - T)",
        "idxs is the last index from 0, one less than the steps: read as steps it is too high",
        values.tokens_per_last_index,
    ),
    _Rule(
        "mean_acceptance_length", "vLLM, speculators, Automodel", _STEP,
        "tau.micro.one_plus_accepted_per_drafted_step", "1 + A / D",
        "steps without a draft are left out: a drafter that rarely speaks looks better",
        values.accepted_plus_one_drafted,
    ),
    _Rule(
        "accept_length", "SGLang, SpecForge", _STEP, "tau.micro.output_tokens_per_verify_step",
        "N / S", "the prefill's token is in the numerator, its forward not in the denominator",
        values.tokens_per_step,
    ),
    _Rule(
        "Average_AL", "specdec_bench", _STEP, "tau.macro_answers.emitted_per_step.no_prefill",
        "mean over answers of E / S",
        "macro over requests and turns; taken here without the prefill's chunk",
        values.tau_macro_answers,
    ),
    _Rule(
        "accept_len", "DeepSpec", _STEP, "tau.micro.emitted_per_forward.first_turns",
        "E / S of first turns", "later turns are not counted", values.emitted_first_turns,
    ),
    _Rule(
        "accept_lengths_tree_micro", "REST", _STEP, _PREFILL_AS_STEP, "N / (S + T)",
        "a leading 1 for the prefill lowers it", values.tokens_per_forward,
    ),
    _Rule(
        "accept_lengths_tree", "REST", _STEP, "tau.macro_answers.accept_lengths.prefill_as_step",
        "mean over answers of N / (S + 1)", "macro, and with the leading 1",
        values.tokens_per_forward_macro,
    ),
    _Rule(
        "compression ratio", "Lookahead", _STEP,
        _PREFILL_AS_STEP, "N / (S + T)",
        "autoregressive decoding is 1; a bound of the speedup that no wider forward reaches",
        values.tokens_per_forward,
    ),
    _Rule(
        "req_speedup", "Arctic simulator", _STEP, "tau.macro_requests.emitted_per_step.no_prefill",
        "mean over requests of E / S", "no time is in it, in spite of its name",
        values.tau_macro_requests,
    ),
    _Rule(
        "Mean Accepted Length", "DReSD", _STEP, "accepted.micro.per_step", "A / S",
        "without the target's own token: one less than others; all steps are taken here",
        values.accepted_per_step,
    ),
    _Rule(
        "tau predicted by alpha", "Leviathan-line papers", _STEP,
        "tau.predicted_iid.mean_over_draft_depths", "mean over steps of (1-a^(K+1)) / (1-a)",
        "alpha for all positions alike, K the depth of each step's draft; compare with tau",
        values.predicted_tau,
    ),
)  # fmt: skip

_RATES = (
    _Rule(
        "alpha", "Leviathan-line papers", "share", "alpha.micro.accepted_per_looked_at",
        "kept / (kept + refused), along the kept path",
        "of a tree: some child was kept; real acceptance is not the same at all positions",
        values.alpha,
    ),
    _Rule(
        "node acceptance rate", "this project, vLLM's draft acceptance rate", "share",
        _id("node_acceptance_rate"), "A / P", "falls with the width of a tree", values.node_rate,
    ),
    _Rule(
        "Acceptance Rate, overall", "DReSD", "share", _id("node_acceptance_rate"), "A / P",
        "all nodes of a tree count as generated", values.node_rate,
    ),
    _Rule(
        "Acceptance Rate, sequence", "DReSD", "share", "node_acceptance.macro_answers",
        "mean over answers of A / P", "answers without any draft are left out",
        values.node_rate_macro,
    ),
    _Rule(
        "path acceptance rate", "this project", "share", "path_acceptance.micro.kept_per_depth",
        "kept depth / draft depth", "does not fall with the width of a tree", values.path_rate,
    ),
    _Rule(
        "verify_rate", "DeepSpec", "share", "verify_rate.micro.emitted_per_row.first_turns",
        "E / (P + S) of first turns", "share of the target's rows that became output",
        values.verify_rate_first_turns,
    ),
    _Rule(
        "draft coverage", "this project", "share", _id("draft_coverage"), "D / S",
        "an acceptance rate says nothing of the steps outside it", values.coverage,
    ),
)  # fmt: skip

_TIMES = (
    _Rule(
        "c", "papers, DSI", "ratio", "draft_cost.propose_and_build_per_forward",
        "draft time / target time",
        "of a whole draft and a forward as wide as it, not of one token; learning is not in it; "
        "exact only if each phase was waited for", values.draft_cost,
    ),
    _Rule(
        "walltime speedup", "most papers", "ratio", _id("speedup"), "total / total",
        "outputs of another length change it", values.speedup_of_times,
    ),
    _Rule(
        "walltime speedup", "Spec-Bench", "ratio", _id("speedup_spec_bench"),
        "ratio of the means over prompts of tokens/s", "short answers weigh as much as long ones",
        values.speedup_of_mean_rates,
    ),
)  # fmt: skip


def _positions() -> list[_Rule]:
    """Acceptance at each draft position, conditional and joint."""
    rules = []
    for position in range(1, NUM_POSITIONS + 1):
        rules += [
            _Rule(
                f"{position - 1}-alpha", "EAGLE, DeepSpec", "share",
                f"accept_at_position.conditional.{position}",
                f"kept {position} / (kept {position} + refused there)",
                f"position {position}, given that the one before was kept and a next one drafted; "
                "EAGLE takes it from chains, here it is that of the tree",
                partial(values.conditional_acceptance, position=position),
            ),
            _Rule(
                f"acceptance at position {position - 1}", "vLLM, llama.cpp", "share",
                f"accept_at_position.joint.{position}.share_of_drafted_steps",
                f"kept {position} / D",
                f"position {position}, of all steps with a draft of any depth",
                partial(values.joint_acceptance, position=position),
            ),
        ]  # fmt: skip
    return rules
