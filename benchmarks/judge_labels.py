"""Which drafted tokens do harm: labels for the head of verifier `judge`, made by the target itself.

The target answers greedily. Where a draft disagrees with it, from left to right, the draft's token
takes the place of the target's, and the target finishes the answer. If that is still right the
mismatch was unimportant, and the new text stays; else it was important, and the old one does. The
feature is the input of the LM head at the swapped token.

Source: AutoJudge (Garipov et al. 2025, arXiv 2504.20039; garipovroma/autojudge,
src/find_important_tokens.py and src/calc_hiddens.py).
Cost: one answer per mismatch.
Deviations: every place is drafted anew, as there, but by any retriever, or by the target's second
most probable token; mismatches keep a distance, so that a bounded number of them is spread over the
answer. Mismatches with an EOS on either side are left out, since the verifier never keeps them.
Behind a swap the answer so far counts as prompt: a retriever that tells the two apart
(`reference_copy`, `aligned_prompt_lookup`) may draft other tokens there than in a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from benchmarks.answer_rules import AnswerRule
from benchmarks.datasets.base import Prompt
from methods.decoding import Method, decode
from methods.generation import StopRule
from methods.sampling import SamplingLaw
from methods.targets.base import TargetModel, TextCodec
from primitives.interfaces import Retriever
from primitives.random_source import RandomSource, TorchRandom
from primitives.structures.top_tokens import top_tokens
from primitives.tree_builders.chain import Chain
from primitives.types import Candidate, Context, StepOutcome
from primitives.verifiers.greedy import Greedy


@dataclass(frozen=True, kw_only=True, eq=False)
class Mismatch:
    """A place where a draft's token was tried instead of the target's.

    Attributes:
        position: Of the answer, from 0.
        target_id: What the target says there.
        draft_id: What the draft says there.
        is_important: Whether the answer was no longer right with it.
        hidden: Input of the LM head at the draft's token.
    """

    position: int
    target_id: int
    draft_id: int
    is_important: bool
    hidden: Float[Tensor, "d"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelMiner:
    """Labels mismatches of one target and one source of drafts.

    Attributes:
        target: The target model; its cache is reset.
        codec: Conversations to ids, ids to text.
        drafter: Whose best candidate is tried; None for the target's second most probable token.
        rule: When an answer is still right.
        max_new_tokens: Output budget per answer, in tokens, at least 1.
        max_mismatches: Most mismatches per prompt, at least 1.
        max_candidates: Candidates that the drafter is asked for, at least 1.
    """

    target: TargetModel
    codec: TextCodec
    drafter: Retriever | None
    rule: AnswerRule
    max_new_tokens: int
    max_mismatches: int
    max_candidates: int = 1

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_mismatches", "max_candidates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be ≥ 1, got {getattr(self, name)}")
        if self.drafter is not None and "reference" in self.drafter.needs:
            raise ValueError(
                f"retriever={self.drafter.name} is told the answer, and makes no mistakes to learn "
                "from: take another retriever"
            )

    @property
    def distance(self) -> int:
        """Least distance of two mismatches, in tokens."""
        return max(1, self.max_new_tokens // self.max_mismatches)

    def mine(self, prompt: Prompt) -> list[Mismatch] | None:
        """Mismatches of the answer to a prompt's first turn, from left to right.

        Returns:
            None if the target's own answer gives nothing to keep.

        Raises:
            ContextOverflow: If the prompt and the budget do not fit the target model.
            ValueError: If the prompt is empty, or cannot be scored.
        """
        prompt_ids = self.codec.encode([("user", prompt.turns[0])])
        answer = self._continue(prompt_ids, self.max_new_tokens)
        is_right = self.rule.of(prompt, self.codec.decode(answer.output_ids))
        if is_right is None:
            return None
        mismatches: list[Mismatch] = []
        place = self._next_mismatch(answer, 0)
        while place is not None and len(mismatches) < self.max_mismatches:
            swapped = self._swapped(prompt_ids, answer, place)
            is_important = not is_right(self.codec.decode(swapped.output_ids))
            assert swapped.hidden is not None  # Behind `place` there was at least one more token.
            mismatches.append(
                Mismatch(
                    position=place,
                    target_id=answer.output_ids[place],
                    draft_id=answer.draft_ids[place],
                    is_important=is_important,
                    hidden=swapped.hidden,
                )
            )
            answer = answer if is_important else swapped
            place = self._next_mismatch(answer, place + self.distance)
        return mismatches

    def _next_mismatch(self, answer: _Answer, start: int) -> int | None:
        """The first place from `start` on whose draft disagrees; the last place has no draft."""
        for place in range(start, len(answer.output_ids) - 1):
            pair = {answer.output_ids[place], answer.draft_ids.get(place, -1)} - {-1}
            if len(pair) == 2 and not pair & self.target.eos_ids:
                return place
        return None

    def _swapped(self, prompt_ids: Sequence[int], answer: _Answer, place: int) -> _Answer:
        """The answer with the draft's token at `place`, finished by the target."""
        before = answer.output_ids[:place]
        rest = self._continue(
            [*prompt_ids, *before], self.max_new_tokens - place, answer.draft_ids[place]
        )
        draft_ids = {place + offset: token for offset, token in rest.draft_ids.items()}
        return _Answer(
            output_ids=(*before, *rest.output_ids), draft_ids=draft_ids, hidden=rest.hidden
        )

    def _continue(
        self, ids: Sequence[int], max_new_tokens: int, first_id: int | None = None
    ) -> _Answer:
        """What the target says behind `ids` and, if given, `first_id`."""
        if self.drafter is not None:
            self.drafter.reset()
        witness = _Witness(self.drafter)
        generation = decode(
            ids,
            target=self.target,
            method=Method(
                name="judge_labels",
                retriever=witness,
                tree_builder=Chain(),
                verifier=Greedy() if first_id is None else _BeginsWith(first_id=first_id),
                node_budget=0,
                max_candidates=self.max_candidates,
            ),
            stop=StopRule(max_new_tokens=max_new_tokens, eos_ids=self.target.eos_ids),
            law=SamplingLaw(),
            random=TorchRandom.from_seed(0),
        )
        return _Answer(
            output_ids=generation.output_ids,
            draft_ids={place - len(ids): token for place, token in witness.draft_ids.items()},
            hidden=witness.hidden,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Answer:
    """An answer, what drafts would have said in its places, and the state at its first token."""

    output_ids: tuple[int, ...]
    draft_ids: Mapping[int, int]
    hidden: Float[Tensor, "d"] | None


@dataclass(kw_only=True, frozen=True)
class _BeginsWith(Greedy):
    """Greedy decoding whose first token is given."""

    first_id: int

    def choose(self, logits: Float[Tensor, "v"], random: RandomSource) -> int:
        """The given token: the loop asks for the first one only."""
        return self.first_id


class _Witness(Retriever):
    """Drafts nothing, but notes what a drafter would have; and the state at the first token.

    Attributes:
        draft_ids: Tokens by place in the whole text.
        hidden: Input of the LM head at the first new token; None until that was forwarded.
    """

    def __init__(self, drafter: Retriever | None) -> None:
        self.drafter = drafter
        self.needs = frozenset({"hidden", *(drafter.needs if drafter else {"last_logits"})})
        self.proposal = drafter.proposal if drafter else "point_mass"
        self.draft_ids: dict[int, int] = {}
        self.hidden: Float[Tensor, "d"] | None = None

    @property
    def hidden_layer(self) -> float | None:
        """The drafter's."""
        return self.drafter.hidden_layer if self.drafter else None

    @property
    def num_top_ids(self) -> int:
        """The drafter's."""
        return self.drafter.num_top_ids if self.drafter else 0

    def begin(self, context: Context) -> None:
        """Passes it on."""
        if self.drafter is not None:
            self.drafter.begin(context)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Notes a token, and proposes none."""
        num_ids = len(context.ids_with_pending)
        if self.drafter is None:
            assert context.last_logits is not None  # It is needed.
            second = top_tokens(context.last_logits[None], 2)[0, -1]
            self.draft_ids[num_ids - 1] = int(second)
            return []
        for candidate in self.drafter.propose(context, limit):
            first, *rest = candidate.token_ids
            if first == context.pending_id and rest and 0 <= rest[0] < context.vocab_size:
                self.draft_ids[num_ids] = rest[0]
                break
        return []

    def observe(self, outcome: StepOutcome) -> None:
        """Passes it on."""
        if self.hidden is None and outcome.hidden is not None:
            self.hidden = outcome.hidden[0].clone()
        if self.drafter is not None:
            self.drafter.observe(outcome)
