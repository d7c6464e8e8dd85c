"""How an arm answers a prompt: its turns one after the other, each answer timed on its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.clock import PhaseClock, no_garbage_collection
from benchmarks.datasets.base import Prompt
from benchmarks.records import Arm, Turn, hash_ids
from benchmarks.run_spec import RunSpec
from benchmarks.steps import Steps
from benchmarks.traces import step_trees, token_texts
from methods.decoding import decode
from methods.generation import StepRecord, StopRule
from methods.targets.base import check_prompt
from primitives.random_source import TorchRandom


def derive_seed(seed: int, prompt_id: str, turn: int, repeat: int, arm: Arm) -> int:
    """A seed of 63 bits, the same whatever was decoded before.

    Arms draw independently: with common random numbers two samplers agree more often than their
    laws do, and a test could not tell a wrong one.
    """
    text = repr((seed, prompt_id, turn, repeat, arm))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class Responder:
    """Answers prompts as a run's specification says."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.stop = StopRule(max_new_tokens=spec.max_new_tokens, eos_ids=spec.target.eos_ids)

    def respond(
        self, prompt: Prompt, arm: Arm, repeat: int, *, is_traced: bool = False
    ) -> tuple[Turn, ...]:
        """All turns of a conversation; traced, with the texts of tokens and the draft trees.

        Raises:
            ContextOverflow: If a turn does not fit the target model.
            ValueError: If a turn has no tokens, or an answer that history needs is missing.
        """
        if self.spec.history == "reference":
            check_references(prompt)
        turns: list[Turn] = []
        messages: list[tuple[str, str]] = []
        for number, text in enumerate(prompt.turns):
            messages.append(("user", text))
            prompt_ids = self.spec.codec.encode(messages)
            seed = derive_seed(self.spec.seed, prompt.prompt_id, number, repeat, arm)
            answer = (
                self._generate(prompt_ids)
                if arm == "generate"
                else self._decode(arm, prompt_ids, seed)
            )
            turns.append(
                self._turn(
                    prompt_ids,
                    answer,
                    keep_prompt_ids=repeat == 0 or number > 0,
                    is_traced=is_traced,
                )
            )
            is_own = self.spec.history == "own" or number + 1 == len(prompt.turns)
            messages.append(("assistant", turns[-1].text if is_own else prompt.references[number]))
        return tuple(turns)

    def _turn(
        self,
        prompt_ids: Sequence[int],
        answer: _Answer,
        *,
        keep_prompt_ids: bool,
        is_traced: bool,
    ) -> Turn:
        """The record of an answer; what takes time here is not timed."""
        codec, steps, tokens = self.spec.codec, None, None
        if answer.records is not None:
            trees = step_trees(codec, answer.records, prompt_ids) if is_traced else None
            steps = Steps.from_records(answer.records, answer.step_ns, trees)
        if is_traced:
            tokens = token_texts(codec, answer.output_ids, prompt_ids[-1])
        return Turn(
            num_prompt_tokens=len(prompt_ids),
            prompt_sha=hash_ids(prompt_ids),
            prompt_ids=tuple(prompt_ids) if keep_prompt_ids else None,
            output_ids=tuple(answer.output_ids),
            text=codec.decode(answer.output_ids),
            finish_reason=answer.finish_reason or "other",
            wall_ns=answer.wall_ns,
            phase_ns=answer.phase_ns,
            steps=steps,
            output_tokens=tokens,
        )

    def _decode(self, arm: Arm, prompt_ids: Sequence[int], seed: int) -> _Answer:
        """The project's own loop."""
        random = TorchRandom.from_seed(seed)
        reference_ids = self._reference_ids(prompt_ids) if arm == "method" else None
        with no_garbage_collection():
            self.spec.synchronize()
            clock = PhaseClock(self.spec.synchronize if self.spec.profile else None)
            generation = decode(
                prompt_ids,
                target=self.spec.target,
                method=self.spec.method if arm == "method" else self.spec.vanilla,
                stop=self.stop,
                law=self.spec.law,
                random=random,
                probe=clock,
                reference_ids=reference_ids,
            )
            self.spec.synchronize()
            timing = clock.stop()
        return _Answer(
            generation.output_ids,
            generation.finish_reason,
            timing.wall_ns,
            timing.phase_ns,
            generation.steps,
            timing.step_ns,
        )

    def _reference_ids(self, prompt_ids: Sequence[int]) -> tuple[int, ...] | None:
        """An answer of vanilla, untimed, for a retriever that is told it."""
        retriever = self.spec.method.retriever
        if retriever is None or "reference" not in retriever.needs:
            return None
        generation = decode(
            prompt_ids,
            target=self.spec.target,
            method=self.spec.vanilla,
            stop=self.stop,
            law=self.spec.law,
            random=TorchRandom.from_seed(0),
        )
        return generation.output_ids

    def _generate(self, prompt_ids: Sequence[int]) -> _Answer:
        """The library's own loop, whose steps and phases cannot be seen."""
        assert self.spec.generate is not None
        check_prompt(
            prompt_ids,
            vocab_size=self.spec.target.vocab_size,
            reserve=self.spec.max_new_tokens,
            max_context=self.spec.target.max_context,
        )
        with no_garbage_collection():
            self.spec.synchronize()
            clock = PhaseClock()
            new_ids = self.spec.generate(prompt_ids, self.spec.max_new_tokens)
            self.spec.synchronize()
            timing = clock.stop()
        output_ids, finish_reason = self.stop.clip(new_ids, 0)
        return _Answer(output_ids, finish_reason, timing.wall_ns, {}, None, ())


class _Answer(NamedTuple):
    output_ids: Sequence[int]
    finish_reason: str | None
    wall_ns: int
    phase_ns: dict[str, int]
    records: Sequence[StepRecord] | None
    step_ns: Sequence[int]


def check_references(prompt: Prompt) -> None:
    """Refuses a conversation whose later turns would follow an unknown answer.

    Raises:
        ValueError: If a turn before the last has no reference.
    """
    for number in range(len(prompt.turns) - 1):
        if number >= len(prompt.references) or not prompt.references[number]:
            raise ValueError(
                f"history=reference needs a reference answer to turn {number + 1} of prompt "
                f"{prompt.prompt_id!r}, which has none"
            )
