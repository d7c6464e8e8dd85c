"""Which step, and what in it, each output token comes from.

A step verifies a tree whose first kept node is the newest output token already, and outputs the
rest of the kept path and one token more:

    kept path   [0: "the"] [2: "cat"] [5: "sat"]     next: "on"
    outputs                  "cat"      "sat"          "on"
    because     (pending)    em         topk           the target chose it
    from        ("")         static     dynamic        target

Where the path starts at another node than 0, that node takes the place of the token before.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.records import Turn
from primitives.types import ROOT_REASON

PREFILL = "prefill"
TARGET = "target"
"""Reason and source of tokens that nobody drafted."""


@dataclass(frozen=True, kw_only=True)
class OutputToken:
    """Where an output token comes from.

    Attributes:
        step: Index of its step; -1 for the prefill's.
        reason: Why it was kept: a word of the verifier, `target` or `prefill`.
        source: Who drafted it, or `target` or `prefill`; `draft` if the step does not tell.
        regret: In nats; 0 unless a verifier kept what the target would not have chosen.
    """

    step: int
    reason: str
    source: str
    regret: float = 0.0


def attribute(turn: Turn) -> list[OutputToken]:
    """One entry per output token.

    Raises:
        ValueError: If the steps of the answer were not recorded.
    """
    steps = turn.steps
    if steps is None:
        raise ValueError("only an answer with recorded steps can be attributed to them")
    tokens = [OutputToken(step=-1, reason=PREFILL, source=PREFILL)]
    columns = zip(steps.reasons, steps.sources, steps.regrets, steps.num_output, strict=True)
    for step, (reasons, sources, regrets, num_output) in enumerate(columns):
        path = [
            OutputToken(
                step=step,
                reason=reason,
                source=source or "draft",
                regret=regrets[place] if regrets else 0.0,
            )
            for place, (reason, source) in enumerate(zip(reasons, sources, strict=True))
        ]
        if path[0].reason != ROOT_REASON:
            tokens[-1] = path[0]
        drafted = path[1 : num_output + 1]
        tokens += drafted
        tokens += [OutputToken(step=step, reason=TARGET, source=TARGET)] * (
            num_output - len(drafted)
        )
    return tokens
