"""Who checks the checks: components with one fault each, and the check that must notice it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from contract import every_component, retriever_checks, tree_builder_checks, verifier_checks
from contract.components import Check
from primitives.random_source import RandomSource
from primitives.retrievers.prompt_lookup import PromptLookup
from primitives.tree_builders.trie import Trie
from primitives.types import Candidate, Context, DraftTree, StepOutcome, Verdict
from primitives.verifiers.greedy import Greedy
from primitives.verifiers.sampling import Sampling
from primitives.verifiers.soft_gated import SoftGated
from support import scenes


@dataclass(kw_only=True)
class Lookup(PromptLookup):
    """Sound, with room for state.

    Attributes:
        max_ngram: As in the base, like the others.
        min_ngram: See there.
        num_tokens: See there.
        match: See there.
        allow_short: See there.
    """

    match: Literal["first", "last", "all"] = "all"
    _state: list[int] = field(default_factory=list, init=False, repr=False, compare=False)


class ChangesInPropose(Lookup):
    def propose(self, context: Context, limit: int) -> list[Candidate]:
        self._state.append(0)
        return super().propose(context, limit)[len(self._state) % 2 :]


class NeverForgets(Lookup):
    """Also copies from what it was told, whichever prompt that belonged to."""

    def observe(self, outcome: StepOutcome) -> None:
        self._state += outcome.token_ids.tolist()

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        if context.pending_id not in self._state[:-1]:
            return super().propose(context, limit)
        after = self._state.index(context.pending_id) + 1
        return [Candidate(token_ids=(context.pending_id, self._state[after]))]


class RemembersRejectedDrafts(NeverForgets):
    def begin(self, context: Context) -> None:
        self._state = []

    def observe(self, outcome: StepOutcome) -> None:
        self._state += outcome.tree.token_ids.tolist()


class CountsSteps(Lookup):
    def begin(self, context: Context) -> None:
        self._state = []

    def observe(self, outcome: StepOutcome) -> None:
        self._state.append(0)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return super().propose(context, limit)[len(self._state) % 2 :]


class ExceedsLimit(Lookup):
    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return super().propose(context, limit + 1)


class MissesPending(Lookup):
    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return [
            dataclasses.replace(c, token_ids=c.token_ids[1:])
            for c in super().propose(context, limit)
        ]


class WorstFirst(Lookup):
    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return super().propose(context, limit)[::-1]


class LiesAboutMatch(Lookup):
    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return [
            dataclasses.replace(c, match_len=c.match_len + 1)
            for c in super().propose(context, limit)
        ]


class ShortMatchesOnly(Lookup):
    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return [c for c in super().propose(context, limit) if c.match_len == 1]


class Invents(Lookup):
    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return [
            dataclasses.replace(c, token_ids=(*c.token_ids, *c.token_ids))
            for c in super().propose(context, limit)
        ]


class Mute(Lookup):
    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return []


class KeepsUndeclaredState(Lookup):
    def begin(self, context: Context) -> None:
        self.seen = context.token_ids


class ChangesItsConfiguration(Lookup):
    def begin(self, context: Context) -> None:
        self.num_tokens += 1


class OverwritesItsInput(Lookup):
    def observe(self, outcome: StepOutcome) -> None:
        outcome.token_ids[:] = 0


@dataclass(kw_only=True)
class HasInertField(Lookup):
    temperature: float = 1.0


@dataclass(kw_only=True)
class TakesAnything(Lookup):
    depth: int = 4


class ExceedsBudget(Trie):
    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        return super().build(pending_id, candidates, budget + 1)


class FirstComeFirstServed(Trie):
    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        ranked = [
            dataclasses.replace(candidate, recency=-place)
            for place, candidate in enumerate(candidates)
        ]
        return super().build(pending_id, ranked, budget)


class NotMonotone(Trie):
    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        return super().build(pending_id, candidates[2 * (budget % 2) :], budget)


class ForgetsSources(Trie):
    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        tree = super().build(pending_id, candidates, budget)
        return dataclasses.replace(tree, sources=("",) * tree.num_nodes)


class RotatesDraftProbs(Trie):
    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        tree = super().build(pending_id, candidates, budget)
        if tree.draft_probs is None:
            return tree
        return dataclasses.replace(tree, draft_probs=tree.draft_probs.roll(1, 0))


class StaysAtNode0(Greedy):
    def verify(
        self,
        tree: DraftTree,
        last_logits: Tensor,
        logits: Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        return Verdict(path=(0,), next_id=self.choose(logits[0], random), reasons=("pending",))


class ReportsNoRegrets(SoftGated):
    def verify(
        self,
        tree: DraftTree,
        last_logits: Tensor,
        logits: Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        verdict = super().verify(tree, last_logits, logits, random, eos_ids)
        return dataclasses.replace(verdict, regrets=())


class LastOfTies(Greedy):
    def verify(
        self,
        tree: DraftTree,
        last_logits: Tensor,
        logits: Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        nudged = logits + torch.arange(logits.shape[1]) * 1e-9
        return super().verify(tree, last_logits, nudged, random)


class SkipsTheBonus(Greedy):
    def verify(
        self,
        tree: DraftTree,
        last_logits: Tensor,
        logits: Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        verdict = super().verify(tree, last_logits, logits, random)
        if len(verdict.path) == 1:
            return verdict
        last = int(tree.token_ids[verdict.path[-1]])
        return Verdict(path=verdict.path[:-1], next_id=last, reasons=verdict.reasons[:-1])


class DrawsWithoutSayingSo(Greedy):
    def choose(self, logits: Tensor, random: RandomSource) -> int:
        return random.categorical(torch.softmax(logits, dim=-1))


class AdmitsAnything(Greedy):
    def admit(
        self, last_logits: Tensor, token_ids: Tensor, eos_ids: frozenset[int] = frozenset()
    ) -> Tensor:
        return torch.ones(token_ids.shape, dtype=torch.bool)


class IgnoresDraftLaw(Sampling):
    """Sample-and-match is biased if the drafts themselves were drawn to be merged or rejected."""

    def verify(
        self,
        tree: DraftTree,
        last_logits: Tensor,
        logits: Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        if tree.draft_probs is not None and tree.num_draft_nodes and random.bernoulli(0.5):
            certain = torch.full_like(tree.draft_probs, 1e-3)
            tree = dataclasses.replace(tree, draft_probs=certain / certain.sum(-1, keepdim=True))
        return super().verify(tree, last_logits, logits, random)


class ReplacesDraws(Sampling):
    """Keeps the law of a rejected child: right with replacement, wrong for distinct siblings."""

    def verify(
        self,
        tree: DraftTree,
        last_logits: Tensor,
        logits: Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        if tree.draft_probs is None or tree.num_draft_nodes < 2:
            return super().verify(tree, last_logits, logits, random)
        target_probs = torch.softmax(logits[0], dim=-1)
        for child in tree.children()[0]:
            token_id, law = int(tree.token_ids[child]), tree.draft_probs[child]
            if random.bernoulli(float(target_probs[token_id] / law[token_id])):
                next_id = self.choose(logits[child], random)
                return Verdict(path=(0, child), next_id=next_id, reasons=("pending", "em"))
            left = (target_probs - law).clamp_min(0.0)
            target_probs = left / left.sum()
        next_id = random.categorical(target_probs)
        return Verdict(path=(0,), next_id=next_id, reasons=("pending",))


class SharpensPointMasses(Sampling):
    def verify(
        self,
        tree: DraftTree,
        last_logits: Tensor,
        logits: Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        return super().verify(tree, last_logits, logits * 1.01, random)


class ClearsDraftProbs(Sampling):
    def verify(
        self,
        tree: DraftTree,
        last_logits: Tensor,
        logits: Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        verdict = super().verify(tree, last_logits, logits, random)
        if tree.draft_probs is not None:
            tree.draft_probs.zero_()
        return verdict


FAULTY: tuple[tuple[type[Any], Check], ...] = (
    (ChangesInPropose, retriever_checks.check_propose_is_readonly),
    (NeverForgets, retriever_checks.check_begin_forgets_the_previous_prompt),
    (RemembersRejectedDrafts, retriever_checks.check_rejected_drafts_leave_no_trace),
    (CountsSteps, retriever_checks.check_observing_in_one_batch_or_singly_is_the_same),
    (ExceedsLimit, retriever_checks.check_candidates_are_well_formed),
    (MissesPending, retriever_checks.check_candidates_are_well_formed),
    (WorstFirst, retriever_checks.check_candidates_are_well_formed),
    (LiesAboutMatch, retriever_checks.check_candidates_follow_their_match),
    (ShortMatchesOnly, retriever_checks.check_longest_match_comes_first),
    (Invents, retriever_checks.check_candidates_follow_their_match),
    (Mute, retriever_checks.check_some_context_has_candidates),
    (KeepsUndeclaredState, every_component.check_state_is_private),
    (ChangesItsConfiguration, every_component.check_fields_survive_use),
    (OverwritesItsInput, every_component.check_inputs_are_not_mutated),
    (HasInertField, every_component.check_each_field_matters),
    (TakesAnything, every_component.check_bad_values_are_refused),
    (TakesAnything, every_component.check_fields_are_documented),
    (ExceedsBudget, tree_builder_checks.check_invariants),
    (FirstComeFirstServed, tree_builder_checks.check_order_of_candidates_does_not_matter),
    (NotMonotone, tree_builder_checks.check_larger_budgets_only_add_nodes),
    (ForgetsSources, tree_builder_checks.check_paths_are_prefixes_of_candidates),
    (RotatesDraftProbs, tree_builder_checks.check_draft_probs_follow_their_nodes),
    (LastOfTies, verifier_checks.check_equals_a_walk_along_the_argmax),
    (LastOfTies, verifier_checks.check_next_token_is_the_argmax_behind_the_path),
    (StaysAtNode0, verifier_checks.check_keeps_no_less_than_exact_match),
    (ReportsNoRegrets, verifier_checks.check_regrets_are_what_the_argmax_would_have_gained),
    (SkipsTheBonus, verifier_checks.check_perfect_draft_is_kept_with_a_bonus),
    (DrawsWithoutSayingSo, verifier_checks.check_draws_only_if_it_says_so),
    (AdmitsAnything, verifier_checks.check_exact_rules_admit_no_alternative_to_pending),
    (IgnoresDraftLaw, verifier_checks.check_independent_drafts_keep_the_law),
    (ReplacesDraws, verifier_checks.check_drafts_without_replacement_keep_the_law),
    (SharpensPointMasses, verifier_checks.check_point_mass_drafts_keep_the_law),
    (ClearsDraftProbs, verifier_checks.check_tree_and_logits_are_left_alone),
)


@pytest.fixture(autouse=True)
def unspoilt_scenes() -> Iterator[None]:
    """Some faults overwrite what they are given, which all tests of a process share."""
    yield
    scenes.forget_all()


@pytest.mark.parametrize(
    ("cls", "check"), FAULTY, ids=[f"{cls.__name__}-{check.__name__}" for cls, check in FAULTY]
)
def test_check_notices_the_fault(cls: type[Any], check: Check) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(cls)


def test_the_sound_base_passes() -> None:
    """What is caught above is the fault, not the class that it was put into."""
    for check in {check for cls, check in FAULTY if issubclass(cls, Lookup)}:
        check(Lookup)
