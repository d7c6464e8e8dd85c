"""The controls: what they propose is known exactly, so tau is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from methods.decoding import decode
from methods.generation import Generation, StopRule
from methods.targets.toy import ToyTarget
from primitives.registry import RETRIEVERS
from primitives.types import Candidate, Context
from support.faults import predicted_tau
from support.toy import GREEDY, RefusesToDraw, greedy_continuation, make_method

REFERENCE = tuple(range(10, 30))


def ask(name: str, output: list[int], limit: int = 4, **fields: Any) -> list[Candidate]:
    """Candidates behind a prompt of two tokens and an output whose last token is pending."""
    ids = np.array([1, 2, *output], dtype=np.int64)
    ids.flags.writeable = False
    context = Context(
        ids_with_pending=ids,
        num_prompt_tokens=2,
        vocab_size=50,
        eos_ids=frozenset({27}),
        reference_ids=REFERENCE,
    )
    retriever = RETRIEVERS.create(name, **fields)
    retriever.begin(context)
    return retriever.propose(context, limit)


def test_oracle_continues_the_reference() -> None:
    (candidate,) = ask("oracle", [10, 11], num_tokens=3)
    assert candidate.token_ids == (11, 12, 13, 14)
    assert candidate.match_len == 2


def test_oracle_stops_at_eos_and_where_the_reference_ends() -> None:
    (candidate,) = ask("oracle", list(REFERENCE[:15]))
    assert candidate.token_ids == (24, 25, 26, 27)
    (candidate,) = ask("oracle", list(REFERENCE[:19]))
    assert candidate.token_ids == (28, 29)
    assert ask("oracle", list(REFERENCE)) == []


def test_oracle_is_silent_off_the_reference() -> None:
    assert ask("oracle", [10, 12]) == []
    assert ask("oracle", [11, 11]) == []
    assert ask("oracle", [10], limit=0) == []


def test_oracle_without_accuracy_is_wrong_everywhere() -> None:
    (candidate,) = ask("oracle", [10], accuracy=0.0)
    assert len(candidate.token_ids) == 11
    assert all(a != b for a, b in zip(candidate.token_ids[1:], REFERENCE[1:], strict=False))


def test_oracle_stays_wrong_behind_the_first_wrong_token() -> None:
    seen = set()
    for seed in range(8):
        (candidate,) = ask("oracle", [10], accuracy=0.7, seed=seed)
        pairs = zip(candidate.token_ids[1:], REFERENCE[1:], strict=False)
        is_right = [a == b for a, b in pairs]
        assert is_right == sorted(is_right, reverse=True)
        seen.add(sum(is_right))
        assert ask("oracle", [10], accuracy=0.7, seed=seed)[0].token_ids == candidate.token_ids
    assert len(seen) > 2


def generated(name: str, **fields: Any) -> Generation:
    """24 tokens of a toy without EOS, with vanilla's own as reference."""
    target = ToyTarget(vocab_size=50, eos_id=None)
    prompt = [1, 2, 3]
    generation = decode(
        prompt,
        target=target,
        method=make_method(RETRIEVERS.create(name, **fields)),
        stop=StopRule(max_new_tokens=24, eos_ids=target.eos_ids),
        law=GREEDY,
        random=RefusesToDraw(),
        reference_ids=greedy_continuation(target, prompt, 24),
    )
    assert generation.output_ids == greedy_continuation(target, prompt, 24)
    return generation


def test_oracle_gives_the_ceiling() -> None:
    for num_tokens in (1, 4, 10):
        generation = generated("oracle", num_tokens=num_tokens)
        tau = 23 / len(generation.steps)
        assert tau == pytest.approx(predicted_tau(24, num_tokens))


def test_wrong_oracle_gives_one_token_per_step() -> None:
    generation = generated("oracle", accuracy=0.0)
    assert len(generation.steps) == 23
    assert all(step.num_draft_nodes for step in generation.steps[:-2])


def test_never_is_vanilla() -> None:
    generation = generated("never")
    assert [step.num_draft_nodes for step in generation.steps] == [0] * 23


def test_oracle_accepts_the_expected_number_of_tokens() -> None:
    """Leviathan et al., equation 1, over the fresh texts of many seeds."""
    accepted = []
    for seed in range(400):
        (candidate,) = ask("oracle", [10], accuracy=0.8, seed=seed, num_tokens=4)
        pairs = zip(candidate.token_ids[1:], REFERENCE[1:], strict=False)
        accepted.append(sum(a == b for a, b in pairs))
    expected = (1 - 0.8**5) / (1 - 0.8)  # 3.3616; the standard error is 0.08.
    assert 1 + np.mean(accepted) == pytest.approx(expected, abs=0.25)


def test_random_is_a_function_of_text_and_seed() -> None:
    first = ask("random", [10, 11], num_candidates=3, num_tokens=5)
    assert first != ask("random", [10, 11], num_candidates=3, num_tokens=5, seed=1)
    ids = [candidate.token_ids for candidate in first]
    again = [c.token_ids for c in ask("random", [10, 11], num_candidates=3, num_tokens=5)]
    other = [c.token_ids for c in ask("random", [12, 11], num_candidates=3, num_tokens=5)]
    assert ids == again
    assert ids != other
    assert all(c[0] == 11 and len(c) <= 6 for c in ids)
    assert len(ask("random", [10], limit=2, num_candidates=3)) == 2


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("oracle", {"num_tokens": 0}, r"num_tokens must be in \[1, 1024\], got 0"),
        ("oracle", {"accuracy": 1.5}, r"accuracy must be in \[0, 1\], got 1.5"),
        ("oracle", {"seed": -1}, "seed must be ≥ 0, got -1"),
        ("random", {"num_tokens": 0}, r"num_tokens must be in \[1, 1024\], got 0"),
        ("random", {"num_candidates": 0}, "num_candidates must be ≥ 1, got 0"),
        ("random", {"seed": -2}, "seed must be ≥ 0, got -2"),
    ],
)
def test_bad_values_are_refused(name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RETRIEVERS.create(name, **fields)
