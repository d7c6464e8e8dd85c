"""Hybrid retrievers: each rule worked by hand, and what the parts must agree about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from methods.sampling import SamplingLaw
from methods.targets.toy import ToyTarget
from primitives.interfaces import Retriever
from primitives.random_source import RandomSource
from primitives.registry import RETRIEVERS, TREE_BUILDERS, VERIFIERS
from primitives.retrievers.hybrid import Hybrid
from primitives.types import Candidate, Context, DraftTree, StepOutcome
from support.enumeration import assert_same_law, exact_law
from support.token_stores import toy_token_store
from support.toy import continuation_law, generate, greedy_continuation, make_method

P = 9  # Pending.


@dataclass(kw_only=True)
class Says(Retriever):
    """Proposes what it is given, and keeps what it is told."""

    candidates: Sequence[Candidate] = ()
    proposal: Literal["point_mass", "iid"] = "point_mass"
    top: int = 0
    heard: list[Any] = field(default_factory=list)

    @property
    def num_top_ids(self) -> int:
        return self.top

    def begin(self, context: Context) -> None:
        self.heard.append("begin")

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        self.heard.append("propose")
        return list(self.candidates[:limit])

    def observe(self, outcome: StepOutcome) -> None:
        self.heard.append(outcome.node_top_ids)

    def reset(self) -> None:
        self.heard.append("reset")


def draft(*token_ids: int, **fields: Any) -> Candidate:
    return Candidate(token_ids=(P, *token_ids), **fields)


def hybrid(parts: Sequence[Retriever], rule: str, **fields: Any) -> Hybrid:
    """A hybrid of parts that no registry knows."""
    made = Hybrid(retrievers=[{"name": "prompt_lookup"}] * 2, rule=rule, **fields)
    made._parts = list(parts)
    return made


def context(ids: Sequence[int] = (P,), **fields: Any) -> Context:
    array = np.array(ids, dtype=np.int64)
    array.flags.writeable = False
    return Context(ids_with_pending=array, num_prompt_tokens=len(ids) - 1, vocab_size=128, **fields)


def drafts(candidates: Sequence[Candidate]) -> list[tuple[int, ...]]:
    """What is proposed behind pending."""
    return [candidate.token_ids[1:] for candidate in candidates]


NEAR = draft(1, 2, score=2.0, match_len=2, source="near")
FAR = draft(3, score=7.0, match_len=4, source="far")
LAST = draft(4, 5, 6, score=0.5, source="last")


def test_priority_asks_until_a_part_has_candidates() -> None:
    parts = [Says(), Says(candidates=[NEAR]), Says(candidates=[LAST])]
    assert hybrid(parts, "priority").propose(context(), 8) == [NEAR]
    assert [part.heard for part in parts] == [["propose"], ["propose"], []]
    assert hybrid([Says(), Says()], "priority").propose(context(), 8) == []


@pytest.mark.parametrize(("least", "chosen"), [(0, FAR), (4, FAR), (5, LAST)])
def test_longest_match_hands_over_to_the_last_part(least: int, chosen: Candidate) -> None:
    parts = [Says(candidates=[NEAR]), Says(candidates=[FAR]), Says(candidates=[LAST])]
    answer = hybrid(parts, "longest_match", min_match_len=least).propose(context(), 8)
    assert answer == [chosen]
    assert parts[2].heard == (["propose"] if chosen is LAST else [])


def test_of_equal_matches_the_first_part_counts() -> None:
    other = draft(8, match_len=2)
    parts = [Says(candidates=[NEAR]), Says(candidates=[other]), Says(candidates=[LAST])]
    assert hybrid(parts, "longest_match", min_match_len=1).propose(context(), 8) == [NEAR]


def test_best_score_takes_estimates_as_expected_tokens() -> None:
    # Three tokens of 0.9 each: 0.9 + 0.81 + 0.729 = 2.439, more than NEAR's score of 2.
    sure = draft(4, 5, 6, score=-1.0, token_probs=(1.0, 0.9, 0.9, 0.9))
    unsure = draft(4, 5, 6, score=9.0, token_probs=(1.0, 0.9, 0.5, 0.5))  # 0.9 + 0.45 + 0.225
    parts = [Says(), Says(candidates=[NEAR]), Says(candidates=[sure])]
    assert hybrid(parts, "best_score").propose(context(), 8) == [sure]
    parts[2] = Says(candidates=[unsure])
    assert hybrid(parts, "best_score").propose(context(), 8) == [NEAR]
    assert hybrid([Says(), Says()], "best_score").propose(context(), 8) == []


def test_union_takes_turns_and_keeps_each_draft_once() -> None:
    parts = [Says(candidates=[NEAR, draft(7)]), Says(candidates=[FAR, NEAR, LAST])]
    answer = hybrid(parts, "union").propose(context(), 8)
    assert drafts(answer) == [(1, 2), (3,), (7,), (4, 5, 6)]
    assert [candidate.score for candidate in answer] == [0.0, -1.0, -2.0, -3.0]
    assert [candidate.source for candidate in answer] == ["near", "far", "", "last"]
    assert drafts(hybrid(parts, "union").propose(context(), 2)) == [(1, 2), (3,)]


def test_union_lets_the_first_estimate_of_a_prefix_hold() -> None:
    first = draft(1, 2, token_probs=(1.0, 0.6, 0.5))
    second = draft(1, 3, token_probs=(1.0, 0.9, 0.2))
    answer = hybrid([Says(candidates=[first]), Says(candidates=[second])], "union").propose(
        context(), 8
    )
    assert [c.token_probs for c in answer] == [(1.0, 0.6, 0.5), (1.0, 0.6, 0.2)]


RETRIEVED = [draft(1, 1, count=1), draft(2, 2, count=5), draft(3, 3, count=9), draft(1, 4, count=4)]


def test_fuse_prunes_by_the_logits_of_pending() -> None:
    # Probabilities of 1, 2, 3 are 0.6, 0.3, 0.1; times counts: 0.6, 1.5, (3 is pruned), 2.4.
    logits = torch.full((128,), -torch.inf)
    logits[1:4] = torch.log(torch.tensor([0.6, 0.3, 0.1]))
    parts = [Says(candidates=[LAST]), Says(candidates=RETRIEVED)]
    answer = hybrid(parts, "fuse", prune_top_k=2).propose(context(last_logits=logits), 8)
    assert drafts(answer) == [(4, 5, 6), (1, 4), (2, 2), (1, 1)]
    # Excluded tokens have no probability, however many may survive.
    logits[3] = -torch.inf
    answer = hybrid(parts, "fuse", prune_top_k=9).propose(context(last_logits=logits), 8)
    assert (3, 3) not in drafts(answer)


def test_fuse_does_not_guess_pending_again() -> None:
    """Pending is the most probable token of its own logits, and takes no place of two guesses."""
    logits = torch.full((128,), -torch.inf)
    logits[[P, 1, 2]] = torch.log(torch.tensor([0.7, 0.2, 0.1]))
    again = draft(P, P, count=9)
    parts = [Says(candidates=[LAST]), Says(candidates=[again, *RETRIEVED])]
    answer = hybrid(parts, "fuse", prune_top_k=2).propose(context(last_logits=logits), 8)
    assert drafts(answer) == [(4, 5, 6), (1, 4), (2, 2), (1, 1)]  # 0.8, 0.5, 0.2


def test_fuse_prunes_by_the_estimates_of_the_first_part() -> None:
    # First tokens 2 (0.5), 1 (0.2) and 3 (0.1); the two best times counts: 2.5, 0.8, 0.2.
    model = [
        draft(2, 7, token_probs=(1.0, 0.5, 0.5)),
        draft(2, 8, token_probs=(1.0, 0.5, 0.1)),
        draft(1, token_probs=(1.0, 0.2)),
        draft(3, token_probs=(1.0, 0.1)),
    ]
    parts = [Says(candidates=model), Says(candidates=RETRIEVED)]
    fields = {"prune_by": "first_part", "prune_top_k": 2}
    answer = hybrid(parts, "fuse", **fields).propose(context(), 8)
    assert drafts(answer) == [(2, 7), (2, 8), (1,), (3,), (2, 2), (1, 4), (1, 1)]
    tree = TREE_BUILDERS.create("trie").build(P, answer, 16)
    assert str(tree).count("token 2\n") == 2  # 2 2 is grafted behind the model's own 2.
    with pytest.raises(ValueError, match=r"prune_by=first_part needs token_probs, .* 'last'"):
        hybrid([Says(candidates=[LAST]), parts[1]], "fuse", **fields).propose(context(), 8)


def test_extend_continues_drafts_that_lead_back_into_the_text() -> None:
    # Behind the draft 2 3 the text ends with 1 2 3, which occurred before 4 5; behind 8 with
    # nothing known.
    text = [1, 2, 3, 4, 5, 6, 1]
    model = [
        Candidate(token_ids=(1, 2, 3), source="model", token_probs=(1.0, 0.9, 0.8)),
        Candidate(token_ids=(1, 8), source="model", token_probs=(1.0, 0.1)),
    ]
    lookup = RETRIEVERS.create("prompt_lookup", num_tokens=2)
    made = hybrid([Says(candidates=model), lookup], "extend", min_match_len=3)
    answer = made.propose(context(text), 8)
    assert [c.token_ids for c in answer] == [(1, 2, 3), (1, 8), (1, 2, 3, 4, 5)]
    assert [c.source for c in answer] == ["model", "model", "prompt_lookup"]
    assert answer[2].match_len == 0  # What the model agreed with before pending.
    tree = TREE_BUILDERS.create("trie").build(1, answer, 16)
    assert tree.sources == ("", "model", "model", "model", "prompt_lookup", "prompt_lookup")
    assert tree.parents.tolist() == [-1, 0, 1, 0, 2, 4]


def test_extend_wants_a_match_of_the_least_length_and_few_leaves() -> None:
    text = [1, 2, 3, 4, 5, 6, 1]
    model = [draft(2), draft(3)]
    lookup = RETRIEVERS.create("prompt_lookup", num_tokens=1)
    model = [replace(c, token_ids=(1, *c.token_ids[1:])) for c in model]  # Pending is 1 here.
    both = [(2,), (3,), (2, 3), (3, 4)]
    for fields, expected in (
        ({"min_match_len": 1}, both),
        ({"min_match_len": 2}, both[:3]),
        ({"min_match_len": 1, "max_leaves": 1}, both[:3]),
    ):
        made = hybrid([Says(candidates=model), lookup], "extend", **fields)
        assert drafts(made.propose(context(text), 8)) == expected


def test_extend_starts_at_pending_without_a_draft_and_stops_at_eos() -> None:
    lookup = RETRIEVERS.create("prompt_lookup", num_tokens=1)
    made = hybrid([Says(), lookup], "extend", min_match_len=1)
    assert drafts(made.propose(context([5, 6, 5]), 8)) == [(6,)]
    made = hybrid([Says(candidates=[Candidate(token_ids=(5, 6))]), lookup], "extend")
    assert drafts(made.propose(context([5, 6, 5], eos_ids=frozenset({6})), 8)) == [(6,)]


def test_parts_hear_everything_and_see_as_many_top_tokens_as_they_asked_for() -> None:
    parts = [Says(top=1), Says(top=3), Says()]
    made = hybrid(parts, "union")
    made.begin(context())
    top_ids = np.arange(3)[None]
    made.observe(
        StepOutcome(
            token_ids=np.array([P]),
            pending_id=1,
            tree=DraftTree.root_only(P),
            path=(0,),
            node_top_ids=top_ids,
        )
    )
    made.reset()
    assert made.num_top_ids == 3
    for part, seen in zip(parts, ([0], [0, 1, 2], []), strict=True):
        begin, heard, reset = part.heard
        assert (begin, heard[0].tolist(), reset) == ("begin", seen, "reset")


def test_tags_are_those_of_all_parts() -> None:
    names = ["suffix_array", "aligned_prompt_lookup", "next_next_token"]
    made = Hybrid(retrievers=[{"name": name} for name in names])
    assert made.needs == {"prompt_top_ids", "last_logits"}
    assert made.wanted_datastore == "tokens"
    assert made.proposal == "point_mass"
    assert not made.is_cross_request
    assert not made.needs_draft_model
    made.attach(toy_token_store())
    lookups = [{"name": "prompt_lookup"}] * 2
    assert Hybrid(retrievers=lookups, rule="fuse").needs == {"last_logits"}
    assert Hybrid(retrievers=lookups, rule="fuse", prune_by="first_part").needs == frozenset()
    with pytest.raises(TypeError, match="searches no datastore"):
        Hybrid(retrievers=lookups).attach(None)
    with pytest.raises(TypeError, match="drafts without a model"):
        Hybrid(retrievers=lookups).attach_draft_model(None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"retrievers": [{"name": "prompt_lookup"}]}, "must name at least 2 parts, got"),
        ({"retrievers": [{"max_ngram": 3}] * 2}, r"retrievers\[0\] must have the name of a retr"),
        ({"retrievers": [{"name": "pl"}] * 2}, "unknown retriever 'pl'"),
        (
            {"retrievers": [{"name": "prompt_lookup", "max_ngrams": 3}] * 2},
            "'prompt_lookup' has no field 'max_ngrams', did you mean 'max_ngram'",
        ),
        (
            {"retrievers": [{"name": "suffix_array"}, {"name": "hidden_state"}]},
            "must share one kind of datastore, got hidden_states, tokens",
        ),
        (
            {"rule": "extend", "retrievers": [{"name": "prompt_lookup"}, {"name": "semantic"}]},
            "text that is not committed, but semantic learns from what is",
        ),
        ({"rule": "vote"}, r"must be priority \| .* \| extend, got 'vote'"),
        ({"min_match_len": -1}, "min_match_len must be ≥ 0, got -1"),
        ({"prune_top_k": 0}, "prune_top_k must be ≥ 1, got 0"),
        ({"max_leaves": 0}, "max_leaves must be ≥ 1, got 0"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RETRIEVERS.create("hybrid", **fields)


@pytest.mark.parametrize("rule", ["best_score", "union", "fuse", "extend"])
def test_sampled_drafts_are_not_chosen_by_what_was_drawn(rule: str) -> None:
    with pytest.raises(ValueError, match=f"rule={rule} takes point_mass drafts only, got iid"):
        hybrid([Says(), Says(proposal="iid")], rule)._combine_tags()


@pytest.mark.parametrize("rule", ["priority", "longest_match"])
def test_sampled_drafts_may_take_turns_with_others(rule: str) -> None:
    made = hybrid([Says(), Says(proposal="iid")], rule)
    made._combine_tags()
    assert made.proposal == "iid"


@pytest.mark.parametrize(
    "rule", ["priority", "longest_match", "best_score", "union", "fuse", "extend"]
)
def test_every_rule_is_lossless(rule: str) -> None:
    target = ToyTarget(vocab_size=8)
    parts = [{"name": "prompt_lookup"}, {"name": "prompt_lookup", "match": "all", "max_ngram": 2}]
    retriever = Hybrid(retrievers=parts, rule=rule, min_match_len=1)
    builder = TREE_BUILDERS.create("best_first")
    prompt = [1, 2, 3, 1, 2]
    generation = generate(make_method(retriever, builder), prompt, target=target)
    assert generation.output_ids == greedy_continuation(target, prompt, 24)
    assert any(step.num_draft_nodes for step in generation.steps)


def test_draft_model_and_text_share_a_tree() -> None:
    """RASD and READER with a real drafter: nodes of both parts are kept."""
    model = {"name": "draft_model", "shape": "tree", "num_tokens": 3, "total_nodes": 8}
    lookup = {"name": "prompt_lookup", "match": "all"}
    for fields in ({"rule": "fuse", "prune_by": "first_part"}, {"rule": "extend"}):
        made = Hybrid(retrievers=[model, lookup], min_match_len=1, **fields)
        assert made.needs_draft_model
        made.attach_draft_model(ToyTarget(vocab_size=16, seed=1))
        target, prompt = ToyTarget(vocab_size=12, eos_id=None), [1, 2, 3, 4, 1, 2, 3]
        method = make_method(made, TREE_BUILDERS.create("best_first"))
        generation = generate(method, prompt, target=target)
        assert generation.output_ids == greedy_continuation(target, prompt, 24)
        sources = {source for step in generation.steps for source in step.tree.sources}
        assert sources == {"", "draft_model", "prompt_lookup"}
    with pytest.raises(ValueError, match="only one of them may need it"):
        Hybrid(retrievers=[model, model])


def test_handing_over_to_sampled_drafts_keeps_the_law() -> None:
    model = {"name": "draft_model", "drafts": "iid", "num_tokens": 1}
    made = Hybrid(retrievers=[{"name": "prompt_lookup"}, model], min_match_len=2)
    made.attach_draft_model(ToyTarget(vocab_size=4, seed=1))
    law, target, prompt = SamplingLaw(temperature=1.0), ToyTarget(vocab_size=4), [1, 2, 3, 1, 2]
    method = make_method(made, verifier=VERIFIERS.create("sampling"))

    def run(random: RandomSource) -> tuple[int, ...]:
        generation = generate(
            method, prompt, target=target, law=law, random=random, max_new_tokens=3
        )
        return generation.output_ids

    assert_same_law(exact_law(run), continuation_law(target, prompt, 3, law))
