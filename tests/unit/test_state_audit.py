"""The statefulness audit on a drafter that remembers, and on one that does not."""

from __future__ import annotations

import pytest

from benchmarks.console import plain_console
from benchmarks.datasets import shuffle_prompts
from benchmarks.datasets.base import Prompt
from benchmarks.runner import run
from benchmarks.state_audit import CONDITIONS, audit, render_audit
from methods.sampling import SamplingLaw
from primitives.retrievers.prompt_lookup import PromptLookup
from support.rows import make_row, make_turn, path, vanilla_steps
from support.runs import TEXTS, Memory, make_dataset, make_method, make_spec, rows_of

WARM = (Prompt(prompt_id="w", category="warm", turns=(TEXTS[2],)),)


def measured(tmp_path, retriever):
    rows = {}
    for name, changes in CONDITIONS.items():
        dataset = shuffle_prompts(make_dataset(), changes["order_seed"])
        spec = make_spec(
            tmp_path / name.replace(" ", "-"),
            dataset=dataset,
            state=changes["state"],
            warm_prompts=WARM if changes["state"] == "warm" else (),
            method=make_method("m", retriever(), SamplingLaw()),
        )
        run(spec)
        rows[name] = rows_of(spec.path)
    return rows


def test_memory_is_found_and_its_absence_too(tmp_path):
    effects = audit(measured(tmp_path / "memory", Memory), is_lossless=True)
    assert [effect.name for effect in effects] == list(CONDITIONS)
    assert effects[0].verdict == "the same"
    assert all(effect.num_changed > 0 for effect in effects[1:])
    plain = audit(measured(tmp_path / "none", PromptLookup), is_lossless=True)
    assert {effect.verdict for effect in plain} == {"the same"}


def test_a_warm_retriever_has_seen_the_corpus(tmp_path):
    """On the first prompt it differs from a carried one, which has seen nothing yet."""
    rows = measured(tmp_path, Memory)
    first = {
        name: next(r for r in rows[name] if (r.prompt_id, r.arm) == ("p0", "method"))
        for name in ("carry", "warm")
    }
    steps = {name: row.turns[0].steps.num_draft_nodes for name, row in first.items()}
    assert steps["carry"] != steps["warm"]
    assert all(row.prompt_id != "w" for row in rows["warm"])


def test_effect_by_hand(capsys):
    def rows(*reasons):
        vanilla = make_turn(vanilla_steps(4), wall_ns=800)
        return [
            make_row("a", "vanilla", vanilla),
            make_row("a", "method", make_turn([(2, r) for r in reasons], wall_ns=400)),
        ]

    two_steps, four_steps = rows(path("em"), path("em")), rows(*[path()] * 4)
    reset, carry = audit({"reset": four_steps, "carry": two_steps}, is_lossless=True)
    assert (reset.tau, carry.tau, carry.change) == (1.0, 2.0, 1.0)
    assert (carry.num_changed, carry.num_prompts, carry.interval) == (1, 1, None)
    assert carry.verdict == "too few prompts"
    plain_console().print(render_audit([reset, carry]))
    assert "1/1" in capsys.readouterr().out


def test_a_condition_without_answers_is_refused():
    with pytest.raises(ValueError, match="state='carry' has no answer of the method"):
        audit({"carry": []}, is_lossless=True)
