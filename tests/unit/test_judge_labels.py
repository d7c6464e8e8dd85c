"""Labels mined on a toy whose greedy and second choices are written down, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.answer_rules import AnswerRule
from benchmarks.datasets.base import Prompt, Task
from benchmarks.judge_labels import LabelMiner, Mismatch
from methods.targets.toy import LOGIT_SCALE, ToyCodec, ToyTarget
from primitives.interfaces import Retriever
from primitives.retrievers.oracle import Oracle
from primitives.types import Candidate, Context, StepOutcome

# Behind each token the most probable one and the second; 0 is EOS.
CHOICES = {1: (2, 4), 2: (3, 5), 3: (0, 1), 4: (3, 5), 5: (0, 1)}
PROMPT = Prompt(
    prompt_id="p", category="c", turns=("question",), references=("t3",),
    task=Task(scorer="short_answer"),
)  # fmt: skip


class OneIdCodec(ToyCodec):
    """Every conversation is the token 1."""

    def encode(self, messages: object) -> list[int]:
        return [1]


class Notes(Retriever):
    """Proposes what it was told, and notes what it is told.

    Attributes:
        drafts: Behind each token the drafted one.
        log: `reset`, the ids of `begin`, and the ids of `observe`.
    """

    def __init__(self, drafts: dict[int, int]) -> None:
        self.drafts = drafts
        self.log: list[object] = []

    def reset(self) -> None:
        self.log.append("reset")

    def begin(self, context: Context) -> None:
        self.log.append(context.ids_with_pending.tolist())

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        pending = context.pending_id
        other = Candidate(token_ids=(pending + 1, 4))  # An alternative to pending.
        if pending not in self.drafts:
            return [other, Candidate(token_ids=(pending,))]
        return [other, Candidate(token_ids=(pending, self.drafts[pending], 4))]

    def observe(self, outcome: StepOutcome) -> None:
        assert outcome.hidden is not None
        self.log.append(tuple(outcome.token_ids.tolist()))


def make_target() -> ToyTarget:
    target = ToyTarget(vocab_size=6, copy_bonus=0.0, eos_logit=0.0)
    table = np.zeros((6, 6, 6))
    for last, (best, second) in CHOICES.items():
        table[:, last, best], table[:, last, second] = 5.0, 4.0
    target._table = table
    return target


def make_miner(
    drafter: Retriever | None = None,
    *,
    max_new_tokens: int = 8,
    max_mismatches: int = 8,
    rule: AnswerRule | None = None,
) -> LabelMiner:
    return LabelMiner(
        target=make_target(),
        codec=OneIdCodec(vocab_size=6),
        drafter=drafter,
        rule=rule or AnswerRule(),
        max_new_tokens=max_new_tokens,
        max_mismatches=max_mismatches,
    )


def told(mismatches: list[Mismatch] | None) -> list[tuple[int, int, int, bool]]:
    assert mismatches is not None
    return [(m.position, m.target_id, m.draft_id, m.is_important) for m in mismatches]


def test_second_choices_left_to_right() -> None:
    """The answer is 2 3 0. 4 for 2 gives 4 3 0, which has t3 and stays; 5 for 3 gives 4 5 0."""
    mismatches = make_miner().mine(PROMPT)
    assert told(mismatches) == [(0, 2, 4, False), (1, 3, 5, True)]


def test_features_are_the_states_at_the_swapped_tokens() -> None:
    mismatches = make_miner().mine(PROMPT)
    assert mismatches is not None
    for mismatch, choices in zip(mismatches, (CHOICES[4], CHOICES[5]), strict=True):
        expected = torch.zeros(6, dtype=torch.float64)
        expected[choices[0]], expected[choices[1]] = 5.0, 4.0
        assert torch.equal(mismatch.hidden, expected / LOGIT_SCALE)


def test_an_important_swap_is_undone() -> None:
    """5 for 3 in 2 3 0 loses t3: the answer goes on with 3."""
    drafter = Notes({2: 5, 3: 4})  # 4 for the EOS behind 3 does not count.
    assert told(make_miner(drafter).mine(PROMPT)) == [(1, 3, 5, True)]


def test_retrievers_follow_each_answer_from_its_beginning() -> None:
    drafter = Notes({2: 5})
    make_miner(drafter).mine(PROMPT)
    answer = ["reset", [1, 2], (2,), (3,)]  # The EOS behind 3 is not forwarded.
    swapped = ["reset", [1, 2, 5], (5,)]
    assert drafter.log == [*answer, *swapped]


def test_drafts_behind_a_swapped_token_are_tried() -> None:
    # 4 behind 2 gives 2 4 3 0: unimportant. Then 5 behind 4 gives 2 4 5 0: important.
    assert told(make_miner(Notes({2: 4, 4: 5})).mine(PROMPT)) == [(1, 3, 4, False), (2, 3, 5, True)]


def test_the_last_token_of_the_budget_has_no_draft() -> None:
    assert told(make_miner(max_new_tokens=2).mine(PROMPT)) == [(0, 2, 4, False)]


def test_mismatches_keep_their_distance() -> None:
    miner = make_miner(max_mismatches=4)
    assert miner.distance == 2
    assert told(miner.mine(PROMPT)) == [(0, 2, 4, False)]
    assert make_miner(max_mismatches=1).distance == 8


def test_likeness_where_nothing_says_what_is_right() -> None:
    """Own answer t2 t3 t0; t4 t3 t0 shares two of three words (2/3), then t4 t5 t0 one (1/3)."""
    prompt = Prompt(prompt_id="p", category="c", turns=("question",))
    for min_rouge, important in ((0.7, [True, True]), (0.6, [False, True]), (0.3, [False, False])):
        labels = told(make_miner(rule=AnswerRule(min_rouge=min_rouge)).mine(prompt))
        assert [label[3] for label in labels] == important


def test_wrong_answers_say_nothing() -> None:
    prompt = Prompt(
        prompt_id="p", category="c", turns=("question",), references=("t4",),
        task=Task(scorer="short_answer"),
    )  # fmt: skip
    assert make_miner().mine(prompt) is None


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="max_mismatches must be ≥ 1, got 0"):
        make_miner(max_mismatches=0)
    with pytest.raises(ValueError, match="retriever=oracle is told the answer"):
        make_miner(Oracle())


def number_prompt() -> Prompt:
    return Prompt(
        prompt_id="p", category="c", turns=("2 * 3?",), references=("#### 6",),
        task=Task(scorer="gsm8k"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("compare", "own", "text", "expected"),
    [
        ("own", "It is 7.", "That makes 7", True),
        ("own", "It is 7.", "It is 6.", False),
        ("own", "It is 7.", "No idea.", False),
        ("reference", "It is 6.", "6.0", True),
        ("reference", "It is 6.", "It is 7.", False),
    ],
)
def test_stated_answers(compare: str, own: str, text: str, expected: bool) -> None:
    is_right = AnswerRule(compare=compare).of(number_prompt(), own)  # type: ignore[arg-type]
    assert is_right is not None
    assert is_right(text) is expected


def test_answers_with_nothing_to_keep() -> None:
    assert AnswerRule(compare="reference").of(number_prompt(), "It is 7.") is None
    assert AnswerRule(compare="own").of(number_prompt(), "No idea.") is None


def test_programs_need_leave() -> None:
    prompt = Prompt(prompt_id="p", category="c", turns=("f?",), task=Task(scorer="humaneval"))
    with pytest.raises(ValueError, match=r"prompt 'p': .*allow_code_execution=true"):
        AnswerRule().of(prompt, "def f(): pass")
