"""The decode loop: clipping, counting, what it hands to the parts, what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from methods.decoding import Method
from methods.generation import PHASES, Phase, Probe, StepRecord, StopRule
from methods.sampling import SamplingLaw
from methods.targets.base import ContextOverflow
from methods.targets.toy import LOGIT_SCALE, ToyTarget
from primitives.interfaces import Retriever, TreeBuilder, Verifier
from primitives.random_source import RandomSource, TorchRandom
from primitives.registry import RETRIEVERS, TREE_BUILDERS, VERIFIERS
from primitives.types import Candidate, Context, DraftTree, StepOutcome, Verdict
from support.faults import AlwaysWrong, FaultyRetriever, Oracle
from support.toy import RecordingToyTarget, generate, greedy_continuation, make_method

EOS, PROMPT = 0, [3, 1, 4, 1, 5]
EOS_FREE = ToyTarget(vocab_size=8, eos_id=None)


@dataclass(kw_only=True)
class Spy(Retriever):
    """Notes what it is told, and proposes by a rule."""

    rule: object = None
    begun: list[Context] = field(default_factory=list)
    asked: list[Context] = field(default_factory=list)
    told: list[StepOutcome] = field(default_factory=list)

    def begin(self, context: Context) -> None:
        self.begun.append(context)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        self.asked.append(context)
        return self.rule.propose(context, limit) if self.rule else []

    def observe(self, outcome: StepOutcome) -> None:
        self.told.append(outcome)


@dataclass(kw_only=True, frozen=True)
class Fixed(Verifier):
    """Returns the verdict it was given; chooses and admits the same token."""

    name = "fixed"

    verdict: Verdict
    first_id: int = 1
    admitted_id: int = 2

    def choose(self, logits: Tensor, random: RandomSource) -> int:
        return self.first_id

    def admit(
        self, last_logits: Tensor, token_ids: Tensor, eos_ids: frozenset[int] = frozenset()
    ) -> Tensor:
        return token_ids == self.admitted_id

    def verify(
        self,
        tree: DraftTree,
        last_logits: Tensor,
        logits: Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        return self.verdict


def proposing(*token_ids: tuple[int, ...]) -> Retriever:
    candidates = [Candidate(token_ids=ids, score=-float(i)) for i, ids in enumerate(token_ids)]
    return FaultyRetriever(rule=lambda context, limit: candidates)


@pytest.mark.parametrize(
    ("token_ids", "num_before", "kept", "reason"),
    [
        ([5, 6], 0, [5, 6], None),
        ([5, 6], 2, [5, 6], "length"),
        ([5, 6, 7], 2, [5, 6], "length"),
        ([5], 3, [5], "length"),
        ([EOS], 0, [EOS], "eos"),
        ([5, EOS, 7], 0, [5, EOS], "eos"),
        ([9, 5, EOS], 0, [9], "eos"),
        ([5, EOS], 2, [5, EOS], "eos"),
        ([5, 6, EOS], 2, [5, 6], "length"),
        ([EOS, EOS], 0, [EOS], "eos"),
        ([], 1, [], None),
        ([], 4, [], "length"),
    ],
)
def test_clip(token_ids: list[int], num_before: int, kept: list[int], reason: str | None) -> None:
    """The budget is 4 tokens; 0 and 9 are EOS. EOS on the last place is an end by EOS."""
    stop = StopRule(max_new_tokens=4, eos_ids=frozenset({EOS, 9}))
    assert stop.clip(token_ids, num_before) == (kept, reason)


def test_first_token_belongs_to_no_step() -> None:
    generation = generate(make_method(), PROMPT, target=EOS_FREE, max_new_tokens=1)
    assert len(generation.output_ids) == 1
    assert generation.steps == ()
    assert generation.finish_reason == "length"


def test_vanilla_is_one_token_per_step() -> None:
    generation = generate(make_method(), PROMPT, target=EOS_FREE, max_new_tokens=5)
    assert generation.output_ids == greedy_continuation(EOS_FREE, PROMPT, 5)
    assert (
        generation.steps
        == (
            StepRecord(
                num_draft_nodes=0,
                num_accepted=0,
                num_output=1,
                num_strict=1,
                reasons=("pending",),
                sources=("",),
                match_len=0,
                draft_depth=0,
                candidate_tokens=0,
                candidate_nodes=0,
                regrets=(),
                regret_bounds=(),
                num_below=0,
                tree=DraftTree.root_only(0),
                path=(0,),
            ),
        )
        * 4
    )


def test_records_of_accepted_drafts() -> None:
    """Seven tokens, drafts of two: the first from the prefill, then 3 + 3."""
    method = make_method(Oracle(target=EOS_FREE, depth=2))
    generation = generate(method, PROMPT, target=EOS_FREE, max_new_tokens=7)
    assert generation.output_ids == greedy_continuation(EOS_FREE, PROMPT, 7)
    assert [step.num_output for step in generation.steps] == [3, 3]
    assert [step.num_accepted for step in generation.steps] == [2, 2]
    assert generation.steps[0].reasons == ("pending", "em", "em")
    assert generation.steps[0].sources == ("", "fault", "fault")
    assert generation.steps[0].draft_depth == 2


def test_draft_is_cut_to_what_may_still_be_output() -> None:
    """With two tokens left, one draft node is forwarded: the last token needs no row."""
    method = make_method(Oracle(target=EOS_FREE, depth=5))
    generation = generate(method, PROMPT, target=EOS_FREE, max_new_tokens=3)
    (step,) = generation.steps
    assert (step.num_draft_nodes, step.num_accepted, step.num_output) == (1, 1, 2)


def _ends_inside_draft() -> tuple[ToyTarget, list[int], tuple[int, ...]]:
    """A target and prompt whose greedy continuation is x, y, EOS."""
    for seed in range(100):
        target = RecordingToyTarget(vocab_size=8, seed=seed, eos_logit=0.0)
        continuation = greedy_continuation(target, PROMPT, 10)
        if len(continuation) == 3 and continuation[-1] == EOS:
            return target, PROMPT, continuation
    raise AssertionError("no such toy")


def test_nothing_behind_eos_is_output_or_counted() -> None:
    target, prompt, continuation = _ends_inside_draft()
    pending = continuation[0]
    method = make_method(proposing((*continuation, 5, 6)))
    generation = generate(method, prompt, target=target, max_new_tokens=10)
    (step,) = generation.steps
    assert generation.output_ids == continuation
    assert generation.finish_reason == "eos"
    assert (step.num_draft_nodes, step.num_accepted, step.num_output) == (2, 2, 2)
    assert target.commits == [(pending, *continuation[1:])]


def test_prompt_lookup_draft_is_cut_by_eos_and_by_the_limit() -> None:
    """The events that the contract's greedy check relies on do happen with a real retriever."""
    target = ToyTarget(vocab_size=8, copy_bonus=20.0, eos_logit=0.0)
    method = make_method(RETRIEVERS.create("prompt_lookup"))
    ends = generate(method, [2, 3, 4, 5, EOS, 2, 3], target=target)
    assert ends.output_ids == (4, 5, EOS)
    assert ends.steps[-1].num_accepted == ends.steps[-1].num_output == 2
    limited = generate(method, [2, 3, 4, 5, 6, 7, 2, 3], target=target, max_new_tokens=3)
    assert limited.output_ids == (4, 5, 6)
    assert limited.steps[-1].draft_depth == 1


def test_eos_as_first_token_runs_no_step_but_shows_the_prompt() -> None:
    """A retriever that learns across prompts must not miss one."""
    spy, target = Spy(), ToyTarget(vocab_size=8, eos_logit=100.0)
    generation = generate(make_method(spy), PROMPT, target=target)
    assert generation.output_ids == (EOS,)
    assert (generation.steps, spy.asked) == ((), [])
    assert spy.begun[0].ids_with_pending.tolist() == [*PROMPT, EOS]


def test_retriever_sees_committed_ids_and_pending() -> None:
    spy = Spy(rule=Oracle(target=EOS_FREE, depth=2))
    generation = generate(make_method(spy), PROMPT, target=EOS_FREE, max_new_tokens=8)
    text = [*PROMPT, *generation.output_ids]
    assert [c.ids_with_pending.tolist() for c in spy.asked] == [text[:6], text[:9], text[:12]]
    assert spy.begun[0].ids_with_pending.tolist() == text[:6]
    for context in spy.asked:
        assert not context.ids_with_pending.flags.writeable
        assert (context.num_prompt_tokens, context.vocab_size) == (5, 8)
        assert context.last_logits is context.last_hidden is context.prompt_hidden is None
    assert [outcome.token_ids.tolist() for outcome in spy.told] == [
        text[5:8],
        text[8:11],
        [text[11]],
    ]
    assert [outcome.pending_id for outcome in spy.told] == [text[8], text[11], text[12]]


def test_needs_are_met_and_nothing_else_is_computed() -> None:
    """Hidden states belong to the kept path, which is neither the first nor the last nodes."""

    @dataclass(kw_only=True)
    class Needy(Spy):
        needs = frozenset({"last_logits", "hidden", "prompt_hidden"})

        def propose(self, context: Context, limit: int) -> list[Candidate]:
            (right,) = super().propose(context, limit)
            bad = (right.token_ids[1] + 1) % 8
            pending = context.pending_id
            tails = [(bad, 1), right.token_ids[1:], (bad, 2)]
            return [
                Candidate(token_ids=(pending, *tail), score=-float(rank))
                for rank, tail in enumerate(tails)
            ]

    spy = Needy(rule=Oracle(target=EOS_FREE, depth=2))
    method = make_method(spy, TREE_BUILDERS.create("trie"))
    generate(method, PROMPT, target=EOS_FREE, max_new_tokens=10)
    assert spy.begun[0].prompt_hidden.shape == (5, 8)
    assert spy.told[0].path == (0, 3, 4)
    for context, outcome in zip(spy.asked, spy.told, strict=True):
        prefix = context.token_ids.tolist()
        assert context.prompt_hidden is None
        assert torch.equal(context.last_logits, EOS_FREE.logits(prefix))
        assert torch.equal(context.last_hidden, EOS_FREE.logits(prefix) / LOGIT_SCALE)
        for row, token_id in zip(outcome.hidden, outcome.token_ids.tolist(), strict=True):
            prefix.append(token_id)
            assert torch.equal(row, EOS_FREE.logits(prefix) / LOGIT_SCALE)


def test_last_logits_obey_the_sampling_law() -> None:
    class Needy(Spy):
        needs = frozenset({"last_logits"})

    spy, law = Needy(), SamplingLaw(temperature=0.5, top_k=2)
    method = make_method(spy, verifier=VERIFIERS.create("sampling"))
    random = TorchRandom.from_seed(0)
    generate(method, PROMPT, target=EOS_FREE, law=law, random=random, max_new_tokens=3)
    for context in spy.asked:
        assert torch.isfinite(context.last_logits).sum() == 2


def test_retriever_is_told_nothing_that_is_no_output() -> None:
    """A retriever that learns across prompts would store a token that was never emitted."""
    target, prompt, continuation = _ends_inside_draft()
    spy = Spy(rule=proposing(continuation))
    generate(make_method(spy), prompt, target=target, max_new_tokens=10)
    (outcome,) = spy.told
    pending = [] if outcome.pending_id is None else [outcome.pending_id]
    assert [*outcome.token_ids.tolist(), *pending] == list(continuation)


def test_same_seed_same_sample() -> None:
    method = make_method(verifier=VERIFIERS.create("sampling"))
    first, again, other = (
        generate(
            method,
            PROMPT,
            target=EOS_FREE,
            law=SamplingLaw(temperature=1.0),
            random=TorchRandom.from_seed(seed),
        ).output_ids
        for seed in (1, 1, 2)
    )
    assert first == again != other


@dataclass
class Log(Probe):
    """Notes what the loop reports."""

    phases: list[Phase] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)

    def end_phase(self, phase: Phase) -> None:
        self.phases.append(phase)

    def end_step(self, step: StepRecord) -> None:
        self.steps.append(step)


def test_phases_are_reported_in_order() -> None:
    """Learning from the prompt, in `begin`, is an `observe` of its own before the first step."""
    log = Log()
    generation = generate(make_method(Spy()), PROMPT, target=EOS_FREE, max_new_tokens=3, probe=log)
    assert log.phases == ["prefill", "observe", *PHASES[1:] * 2]
    assert tuple(log.steps) == generation.steps


def test_the_record_of_a_step_is_made_behind_its_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is the clock's `record`: no phase of a method is charged for it."""
    log, phases_before = Log(), []

    def noting(candidates: Sequence[Candidate]) -> int:
        phases_before.append(log.phases[-1])
        return len(candidates)

    monkeypatch.setattr("methods.generation.num_prefixes", noting)
    generate(make_method(proposing((2,))), PROMPT, target=EOS_FREE, max_new_tokens=3, probe=log)
    assert phases_before == ["observe"] * len(log.steps) != []


def test_vanilla_proposes_nothing() -> None:
    log = Log()
    generate(make_method(), PROMPT, target=EOS_FREE, max_new_tokens=2, probe=log)
    assert log.phases == [phase for phase in PHASES if phase != "propose"]


def test_admitted_alternative_takes_the_place_of_pending() -> None:
    """Tokens 2 and 3 compete with pending (1): only 2 is admitted, and its path is kept."""
    target = RecordingToyTarget(vocab_size=8, eos_id=None)
    verifier = Fixed(verdict=Verdict(path=(2, 3), next_id=6, reasons=("soft", "em")))
    retriever = proposing((1, 4), (2, 5), (3, 5))
    method = make_method(retriever, TREE_BUILDERS.create("trie"), verifier)
    generation = generate(method, PROMPT, target=target, max_new_tokens=3)
    (step,) = generation.steps
    assert generation.output_ids == (2, 5, 6)
    assert target.commits == [(2, 5)]
    assert (step.num_draft_nodes, step.num_accepted, step.num_output) == (3, 2, 2)


def test_path_beyond_eos_is_cut() -> None:
    """A builder of its own mind may draft behind EOS; none of that is output or committed."""

    class BehindEos(TreeBuilder):
        def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
            return DraftTree.from_nodes([pending_id, EOS, 5, 6], [-1, 0, 1, 2])

    target, spy = RecordingToyTarget(vocab_size=8), Spy(rule=proposing((1, 4)))
    verifier = Fixed(
        verdict=Verdict(path=(0, 1, 2, 3), next_id=7, reasons=("pending", *["em"] * 3))
    )
    generation = generate(make_method(spy, BehindEos(), verifier), PROMPT, target=target)
    (step,) = generation.steps
    assert generation.output_ids == (1, EOS)
    assert generation.finish_reason == "eos"
    assert target.commits == [(1, EOS)]
    assert (step.num_accepted, step.num_output, step.reasons) == (1, 1, ("pending", "em"))
    assert (spy.told[0].token_ids.tolist(), spy.told[0].path) == ([1, EOS], (0, 1))


def test_builder_gets_at_most_max_candidates() -> None:
    class Counts(TreeBuilder):
        def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
            assert [candidate.score for candidate in candidates] == [0.0, -1.0]
            return DraftTree.root_only(pending_id)

    retriever = FaultyRetriever(
        rule=lambda context, limit: [
            Candidate(token_ids=(context.pending_id, 1), score=-float(rank)) for rank in range(5)
        ]
    )
    method = make_method(retriever, Counts(), max_candidates=2)
    assert generate(method, PROMPT, target=EOS_FREE, max_new_tokens=4).steps


@pytest.mark.parametrize(
    "path",
    [
        pytest.param((), id="empty"),
        pytest.param((0, 2), id="skips-a-node"),
        pytest.param((1,), id="starts-below-the-root"),
        pytest.param((0, -1), id="negative"),
        pytest.param((0, 9), id="outside"),
    ],
)
def test_verdict_that_is_no_path_is_refused(path: tuple[int, ...]) -> None:
    verifier = Fixed(verdict=Verdict(path=path, next_id=6, reasons=("em",) * len(path)))
    method = make_method(proposing((1, 4, 5)), verifier=verifier)
    with pytest.raises(ValueError, match=r"verifier 'fixed' kept .* no path of the tree"):
        generate(method, PROMPT, target=EOS_FREE)


def test_target_is_reset_for_each_prompt() -> None:
    target = RecordingToyTarget(vocab_size=8, eos_id=None)
    for prompt in (PROMPT, [7]):
        generate(make_method(), prompt, target=target, max_new_tokens=2)
        assert target.committed_ids[: len(prompt)] == tuple(prompt)
        assert target.num_committed == len(prompt) + 1


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([], "the prompt is empty"), ([1, 8], r"token ids must be in \[0, 8\), got 8"), ([-1], "-1")],
)
def test_bad_prompts_are_refused(prompt: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(make_method(), prompt, target=EOS_FREE)


def test_prompt_with_budgets_must_fit_the_target() -> None:
    target = ToyTarget(vocab_size=8, max_context=20)
    method = make_method(node_budget=10)
    assert generate(method, PROMPT, target=target, max_new_tokens=15).output_ids
    with pytest.raises(ContextOverflow, match=r"prompt \(5 tokens\).*\(16 tokens\).*the 20 tokens"):
        generate(method, PROMPT, target=target, max_new_tokens=16)


def test_rows_never_exceed_what_was_reserved() -> None:
    """The cache may be allocated once, at prefill, and never grow."""

    class Measured(ToyTarget):
        def prefill(self, token_ids: Sequence[int], *, reserve: int, draft_rows: int = 0, **kwargs):
            self.capacity = len(token_ids) + reserve + draft_rows
            return super().prefill(token_ids, reserve=reserve, draft_rows=draft_rows, **kwargs)

        def forward_tree(self, tree: DraftTree):
            assert self.num_committed + tree.num_nodes <= self.capacity
            return super().forward_tree(tree)

    target = Measured(vocab_size=8, eos_id=None)
    for retriever in (AlwaysWrong(target=target, depth=4), Oracle(target=target, depth=4)):
        method = make_method(retriever, node_budget=4)
        for max_new_tokens in range(1, 12):
            generate(method, PROMPT, target=target, max_new_tokens=max_new_tokens)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"node_budget": -1}, r"node_budget must be in \[0, 1024\], got -1"),
        ({"node_budget": 1025}, r"node_budget must be in \[0, 1024\], got 1025"),
        ({"max_candidates": 0}, r"max_candidates must be in \[1, 4096\], got 0"),
        ({"max_candidates": 4097}, r"max_candidates must be in \[1, 4096\], got 4097"),
    ],
)
def test_bad_budgets_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_method(**fields)


def test_bad_output_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="max_new_tokens must be ≥ 1, got 0"):
        StopRule(max_new_tokens=0, eos_ids=frozenset())


def test_builder_is_asked_only_if_there_are_candidates() -> None:
    class Refuses(TreeBuilder):
        def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
            raise AssertionError("there was nothing to build from")

    method: Method = make_method(proposing((7, 1), (EOS,)), Refuses())
    target = ToyTarget(vocab_size=7, eos_id=None)
    assert len(generate(method, PROMPT, target=target, max_new_tokens=4).steps) == 3
