"""Rows of runs that never took place, for metrics that can be worked out by hand."""

from __future__ import annotations

from benchmarks.records import Request, Turn
from benchmarks.steps import Steps


def make_turn(steps, *, wall_ns, prefill_ns=0, ids=None, text="", **phase_ns):
    """`steps`: (draft nodes, reasons of the kept path) each; None for an arm without steps.

    A third item holds the regrets of the path, a fourth their bounds.
    """
    numbers = [tuple(step[2:]) + ((),) * (4 - len(step)) for step in steps or []]
    steps = None if steps is None else [step[:2] for step in steps]
    outputs = [len(reasons) for _, reasons in steps or []]
    ids = tuple(range(1 + sum(outputs))) if ids is None else tuple(ids)
    if steps:  # A path that ends in EOS has one node more than it gives tokens.
        outputs[-1] -= sum(outputs) - (len(ids) - 1)
    phase_ns = {"prefill": prefill_ns, **phase_ns}
    phase_ns["record"] = wall_ns - sum(phase_ns.values())
    zeros = (0,) * len(outputs)
    return Turn(
        num_prompt_tokens=1,
        prompt_sha="",
        prompt_ids=(1,),
        output_ids=ids,
        text=text,
        finish_reason="length",
        wall_ns=wall_ns,
        phase_ns=phase_ns if steps is not None else {},
        steps=None
        if steps is None
        else Steps(
            num_draft_nodes=tuple(num for num, _ in steps),
            num_accepted=tuple(sum(r != "pending" for r in reasons) for _, reasons in steps),
            num_output=tuple(outputs),
            num_strict=tuple(
                min(_num_exact(reasons), output)
                for (_, reasons), output in zip(steps, outputs, strict=True)
            ),
            match_len=zeros,
            draft_depth=zeros,
            candidate_tokens=tuple(2 * num for num, _ in steps),
            candidate_nodes=tuple(num for num, _ in steps),
            step_ns=zeros,
            reasons=tuple(reasons for _, reasons in steps),
            sources=tuple(("",) * len(reasons) for _, reasons in steps),
            regrets=tuple(regrets for regrets, _ in numbers),
            regret_bounds=tuple(bounds for _, bounds in numbers),
        ),
    )


def _num_exact(reasons):
    """As if nothing but the kept path was in the tree."""
    exact = [reason in ("pending", "em") for reason in reasons]
    return max(1, [*exact, False].index(False))


def path(*reasons):
    return ("pending", *reasons)


def vanilla_steps(num_steps):
    return [(0, path())] * num_steps


def make_row(prompt_id, arm, *turns, repeat=0, category="x", error=None):
    return Request(
        prompt_id=prompt_id,
        category=category,
        arm=arm,
        repeat=repeat,
        order=0,
        peak_memory_bytes=1000,
        turns=turns,
        error=error,
    )


def two_prompts():
    """Prompt a: 7 tokens in 3 steps; prompt b: 3 tokens in 2 steps."""
    a_steps = [(4, path("em", "em")), (0, path()), (4, path("em"))]
    b_steps = [(2, path()), (0, path())]
    return [
        make_row("a", "vanilla", make_turn(vanilla_steps(6), wall_ns=1000, prefill_ns=200)),
        make_row(
            "a",
            "method",
            make_turn(a_steps, wall_ns=500, prefill_ns=200, propose=30, build=20, forward=210),
        ),
        make_row(
            "b", "vanilla", make_turn(vanilla_steps(2), wall_ns=600, prefill_ns=100), category="y"
        ),
        make_row(
            "b",
            "method",
            make_turn(b_steps, wall_ns=800, prefill_ns=100, propose=100, forward=600),
            category="y",
        ),
    ]
