"""Hybrid: several retrievers, and a rule that says whose candidates a step gets.

    priority        the first part that has any
    longest_match   of all parts but the last the one with the longest match, if it has at least
                    `min_match_len` tokens; otherwise the last part
    best_score      the part whose best candidate expects the most tokens: by its `token_probs`,
                    or else by its score
    union           all parts: the best of each, then the second of each, ...
    fuse            the first part, then those candidates of the others whose first new token is
                    among the `prune_top_k` most probable, by its probability times their count
    extend          the first part, then continuations of its candidates by the first of the other
                    parts that finds `min_match_len` tokens before the end of such a candidate

Source: SAM-Decoding (Hu et al. 2024, arXiv 2411.10666) for the hand-over by match length;
SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975) for the better score; RASD (Quan et al. 2025,
arXiv 2503.03434) for `fuse`; READER (Divilkovskiy et al. 2025, arXiv 2508.09072) for `extend`.
Cost: that of the parts that are asked, per propose and observe (`longest_match` asks the last part
only when it hands over); `fuse` by logits ranks the vocabulary; `extend` asks once per leaf.
Deviations: SAM's `len_bias` against its static automaton is a matter of that part. RASD and READER
are known from their abstracts: RASD prunes by the draft model; with `last_logits` the logits that
pending came from guess the token behind it, as in LogitSpec, without training. Its ranking, and
READER's search at the leaves alone, are our reading. The joint tree is the tree builder's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from primitives.fields import check_range, check_words
from primitives.interfaces import Need, Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.candidate_rules import (
    at_leaf,
    expected_of_best,
    first_step_probs,
    guesses,
    in_order,
    interleaved,
    joined,
    pruned,
)
from primitives.types import Candidate, Context, StepOutcome

Rule = Literal["priority", "longest_match", "best_score", "union", "fuse", "extend"]
MIXES_PROPOSALS = ("priority", "longest_match")
"""Rules that take a step's candidates from one part, and do not look at what was drawn."""


def _default_parts() -> list[dict[str, Any]]:
    prompt_lookup = {"name": "prompt_lookup", "max_ngram": 16, "num_tokens": 40, "match": "last"}
    return [prompt_lookup, {"name": "next_next_token"}]


@RETRIEVERS.register("hybrid")
@dataclass(kw_only=True)
class Hybrid(Retriever):
    """Several retrievers as one.

    Attributes:
        retrievers: The parts in order, at least 2: each the name of a retriever and its fields.
        rule: Whose candidates a step gets.
        min_match_len: With `longest_match` and `extend`, the shortest match that counts, in tokens
            with pending, at least 0.
        prune_by: With `fuse`, where the first new token's probability comes from: the `last_logits`
            or the `token_probs` of the `first_part`.
        prune_top_k: With `fuse`, how many first new tokens survive, at least 1.
        max_leaves: With `extend`, most candidates of the first part that are continued, at least 1.
    """

    retrievers: list[dict[str, Any]] = field(default_factory=_default_parts)
    rule: Rule = "longest_match"
    min_match_len: int = 5
    prune_by: Literal["last_logits", "first_part"] = "last_logits"
    prune_top_k: int = 10
    max_leaves: int = 8
    _parts: list[Retriever] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_words(self)
        check_range(self, "min_match_len", least=0)
        check_range(self, "prune_top_k", "max_leaves", least=1)
        self._parts = [_created(place, part) for place, part in enumerate(self.retrievers)]
        if len(self._parts) < 2:
            raise ValueError(f"retrievers must name at least 2 parts, got {self.retrievers}")
        self._combine_tags()
        if self.rule == "extend":
            self._check_leaf_parts()

    @property
    def hidden_layer(self) -> float | None:
        """That of the parts."""
        return next(filter(None, (part.hidden_layer for part in self._parts)), None)

    @property
    def num_top_ids(self) -> int:
        """The most that a part asks for."""
        return max(part.num_top_ids for part in self._parts)

    def attach(self, store: Any) -> None:
        """Hands the datastore to all parts that search it."""
        if self.datastore is None:
            super().attach(store)
        for part in self._parts:
            if part.wanted_datastore is not None:
                part.attach(store)

    def attach_draft_model(self, model: Any) -> None:
        """Hands the draft model to the part that needs it."""
        if not self.needs_draft_model:
            super().attach_draft_model(model)
        for part in self._parts:
            if part.needs_draft_model:
                part.attach_draft_model(model)

    def begin(self, context: Context) -> None:
        """Starts a prompt in all parts."""
        for part in self._parts:
            part.begin(context)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """What the rule makes of the parts' candidates.

        Returns:
            The candidates of one part as they are, or those of several, scored by their order.

        Raises:
            ValueError: If `fuse` prunes by a first part whose candidates carry no `token_probs`.
        """
        if limit < 1:
            return []
        match self.rule:
            case "priority":
                answers = (part.propose(context, limit) for part in self._parts)
                return next(filter(None, answers), [])
            case "longest_match":
                return self._longest_match(context, limit)
            case "best_score":
                return max(self._answers(context, limit), key=expected_of_best)
            case "union":
                return in_order(interleaved(self._answers(context, limit)), limit)
            case "fuse":
                return in_order(self._fused(context, limit), limit)
            case "extend":
                return in_order(self._extended(context, limit), limit)

    def observe(self, outcome: StepOutcome) -> None:
        """Tells all parts; each sees as many top tokens as it asked for."""
        top_ids = outcome.node_top_ids
        for part in self._parts:
            if top_ids is not None:
                outcome = replace(outcome, node_top_ids=top_ids[:, : part.num_top_ids])
            part.observe(outcome)

    def reset(self) -> None:
        """Resets all parts."""
        for part in self._parts:
            part.reset()

    def _answers(self, context: Context, limit: int) -> list[list[Candidate]]:
        return [part.propose(context, limit) for part in self._parts]

    def _longest_match(self, context: Context, limit: int) -> list[Candidate]:
        *matching, fallback = self._parts
        answers = [part.propose(context, limit) for part in matching]
        best = max(answers, key=lambda answer: answer[0].match_len if answer else -1)
        if best and best[0].match_len >= self.min_match_len:
            return best
        return fallback.propose(context, limit)

    def _fused(self, context: Context, limit: int) -> list[Candidate]:
        first, *others = self._answers(context, limit)
        if self.prune_by == "first_part":
            probs = first_step_probs(first, self.prune_top_k)
        else:
            probs = guesses(context.last_logits, self.prune_top_k, context.pending_id)
        found = [candidate for answer in others for candidate in answer]
        return first + pruned(found, context.pending_id, probs)

    def _extended(self, context: Context, limit: int) -> Iterator[Candidate]:
        first, *others = self._parts
        leaves = first.propose(context, limit)
        yield from leaves
        pending = Candidate(token_ids=(context.pending_id,), token_probs=(1.0,))
        for leaf in leaves[: self.max_leaves] or [pending]:
            if leaf.token_ids[-1] in context.eos_ids:
                continue
            behind = at_leaf(leaf, context)
            for part in others:
                found = part.propose(behind, 1)
                if found and found[0].match_len >= self.min_match_len:
                    yield joined(leaf, found[0])
                    break

    def _combine_tags(self) -> None:
        """Declares what the parts are, all together.

        Raises:
            ValueError: If one datastore, draft model or layer cannot serve them all.
        """
        parts = self._parts
        needs: set[Need] = {need for part in parts for need in part.needs}
        if (self.rule, self.prune_by) == ("fuse", "last_logits"):
            needs.add("last_logits")
        self.needs = frozenset(needs)
        self.datastore = _shared([part.wanted_datastore for part in parts], "kind of datastore")
        self.is_cross_request = any(part.is_cross_request for part in parts)
        self.proposes_alternatives = any(part.proposes_alternatives for part in parts)
        self.needs_draft_model = any(part.needs_draft_model for part in parts)
        if sum(part.needs_draft_model for part in parts) > 1:
            raise ValueError("retrievers cannot share a draft model: only one of them may need it")
        sampled = [part.proposal for part in parts if part.proposal != "point_mass"]
        if sampled and self.rule not in MIXES_PROPOSALS:
            raise ValueError(f"rule={self.rule} takes point_mass drafts only, got {sampled[0]}")
        self.proposal = _shared(sampled, "proposal") or "point_mass"
        _shared([part.hidden_layer for part in parts], "hidden_layer")

    def _check_leaf_parts(self) -> None:
        """Refuses parts that know the committed text only: a leaf lies behind it."""
        for part in self._parts[1:]:
            learns = type(part).observe is not Retriever.observe
            if learns or part.needs & {"last_logits", "hidden"}:
                raise ValueError(
                    f"rule=extend asks its later parts about text that is not committed, but "
                    f"{part.name} learns from what is: take one that reads ids alone"
                )


def _created(place: int, part: dict[str, Any]) -> Retriever:
    fields = dict(part)
    name = fields.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(f"retrievers[{place}] must have the name of a retriever, got {part}")
    return RETRIEVERS.create(name, **fields)


def _shared(values: list[Any], what: str) -> Any:
    """The one value that is not None, if there is any."""
    distinct = sorted({value for value in values if value is not None})
    if len(distinct) > 1:
        raise ValueError(f"retrievers must share one {what}, got {', '.join(map(str, distinct))}")
    return distinct[0] if distinct else None
