"""Certificates: what passes, what fails, and a broken cache commit that must not get through."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from benchmarks import judging
from benchmarks.certificate import certify
from benchmarks.datasets.base import Prompt
from benchmarks.divergence import examine
from benchmarks.law_test import compare_laws
from benchmarks.runner import run
from benchmarks.surprise import Surprise, _of_token, surprise
from benchmarks.teacher_forcing import spacing
from methods.decoding import Method
from methods.sampling import SamplingLaw
from methods.targets.huggingface import HuggingFaceTarget
from methods.targets.toy import ToyCodec, ToyTarget
from primitives.interfaces import Retriever, Verifier
from primitives.random_source import RandomSource
from primitives.retrievers.prompt_lookup import PromptLookup
from primitives.tree_builders.trie import Trie
from primitives.types import ROOT_REASON, Candidate, Context, DraftTree, Verdict
from primitives.verifiers.greedy import Greedy
from primitives.verifiers.sampling import Sampling
from support.rows import make_row, make_turn, vanilla_steps
from support.runs import make_dataset, make_method, make_spec, rows_of, status_of

GREEDY = {"is_greedy": True, "is_lossless": True, "dtype": "float32", "device": "cpu"}
VOCAB = 64


def answers(ids: Sequence[int], arm: str, prompt_id: str = "a") -> Any:
    return make_row(prompt_id, arm, make_turn(vanilla_steps(len(ids) - 1), wall_ns=9, ids=ids))


def pair(vanilla: Sequence[int], method: Sequence[int], prompt_id: str = "a") -> list[Any]:
    return [answers(vanilla, "vanilla", prompt_id), answers(method, "method", prompt_id)]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1.0, torch.bfloat16, 2**-7),
        (1.99, torch.bfloat16, 2**-7),
        (-20.0, torch.bfloat16, 2**-3),
        (20.0, torch.float16, 2**-6),
        (20.0, torch.float32, 2**-19),
        (0.0, torch.float64, 0.0),
    ],
)
def test_spacing_by_hand(value, dtype, expected):
    assert spacing(value, dtype) == pytest.approx(expected, abs=1e-300)


def test_exact_tier():
    rows = [*pair([1, 2, 3], [1, 2, 3]), *pair([1, 2, 3], [1, 2, 4], "b")]
    certificate = certify(rows, GREEDY, None)
    assert (certificate.tier, certificate.status) == ("exact", "failed")
    assert certificate.badge == "FAILED: 1/2 differ"
    assert certify(rows[:2], GREEDY, None).badge == "exact 1/1"


@pytest.mark.parametrize(
    ("found", "by_width", "status", "badge"),
    [
        ((2.0, 0), 0.0, "passed", "bfloat16: 1/2 differ, control 1/2"),
        ((3.0, 0), 0.0, "failed", "FAILED: 1/2 beyond rounding (bfloat16)"),
        ((3.0, 0), 5.0, "passed", "bfloat16: 1/2 differ, control 1/2"),
        ((6.0, 0), 5.0, "failed", "FAILED: 1/2 beyond rounding (bfloat16)"),
        ((None, 0), 5.0, "failed", "FAILED: 1/2 beyond rounding (bfloat16)"),
        ((0.0, 1), 5.0, "failed", "FAILED: 1/2 beyond rounding (bfloat16)"),
        (None, 0.0, "incomplete", "bfloat16: 1/2 differ, control 1/2, not examined"),
    ],
)
def test_rounding_tier(found, by_width, status, badge):
    rows = [
        *pair([1, 2, 3], [1, 2, 3]),
        *pair([1, 2, 3], [1, 2, 4], "b"),
        answers([1, 2, 3], "control"),
        answers([1, 9, 3], "control", "b"),
    ]
    examined = None
    if found is not None:
        gap, num_ends_wrong = found
        divergence = {
            "arm": "method", "prompt_id": "b", "num_ends_wrong": num_ends_wrong,
            "largest_gap_spacings": gap,
        }  # fmt: skip
        control = {"largest_gap_spacings": by_width}
        examined = {"divergences": [divergence], "width_control": control}
    certificate = certify(rows, {**GREEDY, "dtype": "bfloat16"}, examined)
    assert (certificate.tier, certificate.status, certificate.badge) == ("rounding", status, badge)
    assert certificate.control == {"num_prompts": 2, "num_different": 1}


def test_answers_that_are_missing_leave_it_incomplete():
    """Five of six prompts failed: the sixth says nothing about them."""
    facts = {**GREEDY, "num_prompts": 6, "repeats": 1}
    certificate = certify(pair([1, 2], [1, 2]), facts, None)
    assert certificate.status == "incomplete"
    assert certificate.badge == "exact 1/1; 5 answers are missing"
    assert certify(pair([1, 2], [1, 3]), facts, None).status == "failed"


def test_every_repeat_has_to_be_examined():
    rows = [replace(row, repeat=repeat) for repeat in (0, 1) for row in pair([1, 2, 3], [1, 2, 4])]
    one = {
        "arm": "method", "prompt_id": "a", "num_ends_wrong": 0, "largest_gap_spacings": 1.0,
    }  # fmt: skip
    facts = {**GREEDY, "dtype": "float16"}
    assert certify(rows, facts, {"divergences": [one]}).status == "incomplete"
    assert certify(rows, facts, {"divergences": [one, one]}).status == "passed"


def test_a_gpu_is_judged_by_rounding():
    rows = pair([1, 2], [1, 2])
    certificate = certify(rows, {**GREEDY, "device": "cuda:0"}, None)
    assert (certificate.tier, certificate.badge) == ("rounding", "float32: 0/1 differ")


def test_nothing_is_promised_and_nothing_compared():
    relaxed = {**GREEDY, "is_lossless": False}
    certificate = certify(pair([1, 2], [1, 3]), relaxed, None)
    assert (certificate.status, certificate.badge) == ("not promised", "changes output")
    assert certify([], GREEDY, None).status == "incomplete"


def test_certificates_are_plain_json_values():
    value = certify(pair([1, 2], [1, 2]), GREEDY, {"divergences": [], "width_control": None})
    assert value.to_json() == {
        "tier": "exact",
        "status": "passed",
        "badge": "exact 1/1",
        "num_prompts": 1,
        "num_different": 0,
        "control": None,
        "divergences": [],
        "width_control": None,
        "limit_spacings": None,
    }


class TestLaws:
    def draws(self, weights, num, seed):
        generator = np.random.default_rng(seed)
        return [[int(t)] * 8 for t in generator.choice(len(weights), size=num, p=weights)]

    def test_distance_by_hand(self):
        """One position differs: half of the first arm's answers begin with 1, none of the other."""
        first = [[0]] * 4 + [[1]] * 4
        second = [[0]] * 8
        # 0.5 (|4/8 - 8/8| + |4/8 - 0|) = 0.5.
        assert compare_laws([(first, second)]).distance == pytest.approx(0.5)
        # Where all else agrees, it is spread over the positions.
        longer = [([*a, 7, 7, 7], [*b, 7, 7, 7]) for a, b in zip(first, second, strict=True)]
        pairs = [([a for a, _ in longer], [b for _, b in longer])]
        assert compare_laws(pairs).distance == pytest.approx(0.5 / 4)

    def test_equal_laws_pass_and_others_fail(self):
        same = [
            (self.draws([0.5, 0.5], 40, 2 * i), self.draws([0.5, 0.5], 40, 2 * i + 1))
            for i in range(4)
        ]
        other = [(a, self.draws([0.2, 0.8], 40, 99)) for a, _ in same]
        assert compare_laws(same).p_value > 0.05
        assert compare_laws(other).p_value == pytest.approx(0.001)

    def test_p_values_are_uniform_under_one_law(self):
        values = [
            compare_laws([(self.draws([0.3, 0.7], 12, i), self.draws([0.3, 0.7], 12, 500 + i))])
            for i in range(60)
        ]
        share = np.mean([test.p_value <= 0.2 for test in values])
        assert share <= 0.35  # 0.2 expected; four standard errors above would be 0.41.

    def test_too_few_answers_are_refused(self):
        with pytest.raises(ValueError, match=r"at least 8 answers .* got 3 and 3"):
            compare_laws([([[1]] * 3, [[1]] * 3)])


@dataclass(frozen=True, kw_only=True)
class AcceptsAll(Verifier):
    """Claims to be lossless and keeps every first child."""

    is_lossless_sampling = True

    def verify(
        self,
        tree: DraftTree,
        last_logits: torch.Tensor,
        logits: torch.Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        path = list(range(tree.num_nodes))
        reasons = (ROOT_REASON, *["em"] * (len(path) - 1))
        next_id = int(torch.softmax(logits[-1], -1).argmax())
        return Verdict(path=tuple(path), next_id=next_id, reasons=reasons)

    def choose(self, logits: torch.Tensor, random: RandomSource) -> int:
        return Sampling().choose(logits, random)


@dataclass(frozen=True, kw_only=True)
class Sharpened(Sampling):
    """Samples at a lower temperature wherever there is a draft."""

    factor: float = 1.0

    def verify(
        self,
        tree: DraftTree,
        last_logits: torch.Tensor,
        logits: torch.Tensor,
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
    ) -> Verdict:
        factor = self.factor if tree.num_draft_nodes else 1.0
        return super().verify(tree, last_logits, logits * factor, random, eos_ids)


def sampled(tmp_path, verifier, **changes):
    law = SamplingLaw(temperature=1.0)
    method = Method(**{**vars(make_spec(tmp_path, law=law).method), "verifier": verifier})
    return run(make_spec(tmp_path, law=law, method=method, **changes)).summary["certificate"]


@pytest.mark.parametrize(
    ("verifier", "status"),
    [
        (Sampling(), "passed"),
        (Sharpened(factor=1.5), "failed"),
        pytest.param(Sharpened(factor=1.0), "passed", marks=pytest.mark.slow),
        pytest.param(Sharpened(factor=0.5), "failed", marks=pytest.mark.slow),
        pytest.param(AcceptsAll(), "failed", marks=pytest.mark.slow),
    ],
    ids=["right", "sharper", "right too", "flatter", "all drafts"],
)
def test_law_tier_finds_a_biased_verifier(tmp_path, verifier, status):
    certificate = sampled(tmp_path, verifier, repeats=8, num_control_prompts=None)
    assert (certificate["tier"], certificate["status"]) == ("law", status)
    # Vanilla is right by itself, and beside itself.
    assert certificate["surprise"]["vanilla"]["p_value"] > 0.01
    assert certificate["law_control"]["p_value"] > 0.01
    assert certificate["law_control"]["distance"] > 0.0


def test_law_tier_needs_no_repeats(tmp_path):
    certificate = sampled(tmp_path, Sampling(), repeats=1)
    assert certificate["status"] == "passed"
    assert certificate["badge"].startswith("law: z ")
    assert certificate["law_test"] is None


def test_tokens_that_the_law_excludes_are_found():
    target = ToyTarget(eos_id=None)
    law = SamplingLaw(temperature=1.0, top_k=3)
    logits = target.logits([1, 2])
    best, worst = int(logits.argmax()), int(logits.argmin())
    assert surprise(target, law, [([1, 2], [best])]).num_outside == 0
    assert surprise(target, law, [([1, 2], [worst])]).num_outside == 1


def test_surprise_by_hand():
    """p = (1/2, 1/4, 1/4): H = 1.5 ln 2, Var = ln(2)^2 / 4; the first token surprises by ln 2."""
    one = _of_token(SamplingLaw(temperature=1.0), torch.tensor([0.5, 0.25, 0.25]).log(), 0)
    assert one.excess == pytest.approx(-0.5 * math.log(2), rel=1e-6)
    assert one.variance == pytest.approx(0.25 * math.log(2) ** 2, rel=1e-6)
    many = Surprise(num_tokens=100, excess=8.0, variance=16.0)
    assert many.z == 2.0
    assert many.p_value == pytest.approx(0.0455, abs=1e-4)
    assert many.resolution == pytest.approx(2.5758 * 4 / 100, rel=1e-4)
    assert Surprise(num_tokens=9, excess=3.0, variance=9.0).z is None


@functools.cache
def tiny_model(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    config = tf.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=128, eos_token_id=None,
    )  # fmt: skip
    model = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.to(dtype)


class ForgetsToMove(HuggingFaceTarget):
    """A cache commit with a classic fault: the rows of the path stay where they are."""

    is_broken = False

    def commit(self, path: Sequence[int]) -> None:
        super().commit(list(range(len(path))) if self.is_broken else path)


@dataclass(kw_only=True)
class WrongThenRight(Retriever):
    """Drafts a wrong token first and the right ones second, so that the kept path must move."""

    name = "wrong_then_right"
    answers: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        ids = context.ids_with_pending.tolist()
        prompt = tuple(ids[: context.num_prompt_tokens])
        answer = self.answers[prompt]
        done = len(ids) - len(prompt)
        right = answer[done - 1 : done + 3]
        wrong = (right[0], (answer[min(done, len(answer) - 1)] + 1) % VOCAB)
        return [
            Candidate(token_ids=tuple(wrong), score=2.0, source="wrong"),
            Candidate(token_ids=tuple(right), score=1.0, source="right"),
        ]


@pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_broken_cache_commit_is_caught(tmp_path, dtype, is_broken):
    target = ForgetsToMove(tiny_model(dtype), vocab_size=VOCAB, eos_ids=frozenset())
    target.is_broken = is_broken
    codec = ToyCodec(vocab_size=VOCAB)
    retriever = WrongThenRight()
    method = Method(
        name="drafts",
        retriever=retriever,
        tree_builder=Trie(),
        verifier=Greedy(),
        node_budget=8,
        max_candidates=2,
    )
    spec = make_spec(
        tmp_path,
        target=target,
        codec=codec,
        method=method,
        warmup=0,
        max_new_tokens=12,
        model_hashes={"dtype": str(dtype).removeprefix("torch.")},
        num_control_prompts=None,
    )
    for prompt in spec.dataset.prompts:
        ids = codec.encode([("user", prompt.turns[0])])
        retriever.answers[tuple(ids)] = target.generate(ids, 14)
    summary = run(spec).summary
    certificate = summary["certificate"]
    assert summary["metrics"]["tau"]["value"] > 1.2
    assert certificate["status"] == ("failed" if is_broken else "passed")
    is_rounded = dtype == torch.bfloat16
    assert certificate["tier"] == ("rounding" if is_rounded else "exact")
    expected = {"num_prompts": 6, "num_different": 0} if is_rounded else None
    assert certificate["control"] == expected
    if is_rounded:
        assert certificate["width_control"]["num_tokens"] == 6 * 12
        assert certificate["limit_spacings"] >= 2
    if is_broken:
        divergence = certificate["divergences"][0]
        assert divergence["num_outside"] > 0
        assert divergence["largest_gap_spacings"] > (certificate["limit_spacings"] or 2)
        assert divergence["is_reproduced"]
        assert len(divergence["top_logits"]) == 5
        assert divergence["tree_path"][0] == 0
        # The step where it shows begins with the prompt and all tokens but pending committed.
        num_prompt = len(codec.encode([("user", spec.dataset.prompts[0].turns[0])]))
        row = next(r for r in rows_of(spec.path) if r.key == ("p0", 0, "method"))
        outputs = row.turns[0].steps.num_output[: divergence["step"]]
        assert divergence["cache_len"] == num_prompt + sum(outputs)


def test_an_answer_that_ends_too_early_is_no_rounding(tmp_path):
    """Every token is an argmax, but half of them are missing."""
    hashes = {"dtype": "bfloat16"}
    spec = make_spec(tmp_path, model_hashes=hashes, target=ToyTarget(eos_id=None))
    run(spec)
    rows = [halved(row) if row.arm == "method" else row for row in rows_of(spec.path)]
    examined = examine(spec, rows)
    assert all(found["num_outside"] == 0 for found in examined["divergences"])
    assert {found["num_ends_wrong"] for found in examined["divergences"]} == {1}
    assert examined["divergences"][0]["cache_len"] > 12
    assert certify(rows, spec.facts, examined).status == "failed"


def halved(request):
    turn = request.turns[0]
    kept = turn.output_ids[: len(turn.output_ids) // 2]
    steps = replace(make_turn(vanilla_steps(len(kept) - 1), wall_ns=1).steps)
    return replace(request, turns=(replace(turn, output_ids=kept, steps=steps),))


@dataclass(kw_only=True)
class WrongLater(Verifier):
    """Exact in the first pass over the prompts, not in the second."""

    is_lossless_greedy = True
    passes: list[int] = field(default_factory=lambda: [0])

    def verify(self, tree, last_logits, logits, random, eos_ids=frozenset()):
        self.passes[0] += 1
        next_id = int(logits[0].argmax())
        if self.passes[0] > 44:
            next_id = (next_id + 1) % logits.shape[-1]
        return Verdict(path=(0,), next_id=next_id, reasons=(ROOT_REASON,))


def test_later_repeats_of_conversations_can_be_examined(tmp_path):
    """A wrong first turn in the second repeat makes a prompt that no other row has."""
    prompts = [
        Prompt(prompt_id=f"p{n}", category="x", turns=(f"one two {n}", "three")) for n in range(2)
    ]
    method = make_method("wrong", PromptLookup(), SamplingLaw())
    method = Method(**{**vars(method), "verifier": WrongLater()})
    spec = make_spec(
        tmp_path, dataset=make_dataset(prompts), method=method, repeats=2, warmup=0,
        target=ToyTarget(eos_id=None), max_new_tokens=12,
    )  # fmt: skip
    result = run(spec)
    assert result.summary["certificate"]["status"] == "failed"
    assert {found["repeat"] for found in result.summary["certificate"]["divergences"]} == {1}


class NoNumbers(ToyTarget):
    """Logits of NaN whenever a second row is forwarded."""

    def forward_tree(self, tree):
        output = super().forward_tree(tree)
        return replace(output, logits=output.logits * float("nan"))


def test_logits_that_are_no_numbers_are_outside(tmp_path):
    spec = make_spec(tmp_path, target=ToyTarget(eos_id=None), model_hashes={"dtype": "float16"})
    run(spec)
    rows = rows_of(spec.path)
    changed = [
        replace(row, turns=(replace(row.turns[0], output_ids=flipped(row)),))
        if row.key == ("p0", 0, "method")
        else row
        for row in rows
    ]
    broken = replace(spec, target=NoNumbers(eos_id=None))
    (found,) = examine(broken, changed)["divergences"]
    assert found["largest_gap_spacings"] is None
    assert found["num_outside"] > 0


def flipped(row):
    *ids, last = row.turns[0].output_ids
    return (*ids, (last + 1) % 32)


def test_an_examination_that_fails_leaves_a_whole_run(tmp_path, monkeypatch, caplog):
    def fail(spec, requests):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(judging, "examine", fail)
    spec = make_spec(tmp_path, model_hashes={"dtype": "bfloat16"})
    result = run(spec)
    assert status_of(spec.path)["state"] == "done"
    assert result.summary["certificate"]["status"] in ("passed", "incomplete")
    assert "out of memory" in caplog.text
