"""PLD+: of all earlier places of pending, copy behind the one where the model was most alike.

Every earlier occurrence of pending is a place to copy from. They are ranked by the hidden states of
a middle layer, taken one token before: pending itself has not been forwarded yet.

    score(j) = cos(h[j - 1], h[s - 1])     for 1 <= j < s with ids[j] = pending = ids[s]
    draft = ids[j + 1 : j + 1 + num_tokens] of the largest score; of equal ones the largest j

Source: Somasundaram, Phukan, Saxena 2024, PLD+ (arXiv 2412.01447), variant (h).
Cost: O(s) comparisons and O(p * d) for the cosines of p places per propose; O(d) per token that is
observed, 4 d bytes each.
Deviations: the layers known to work best (9 to 13 of 32) and the index shift come from others'
notes on the paper; draft length and tie rule are ours. `num_candidates` above 1 is ours: the paper
copies from the best place alone. The variant that ranks by attention heads is not offered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from primitives.fields import check_range
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.growing_states import GrowingStates
from primitives.types import MAX_DRAFT_NODES, Candidate, Context, StepOutcome


@RETRIEVERS.register("prompt_lookup_ranked")
@dataclass(kw_only=True)
class PromptLookupRanked(Retriever):
    """Earlier occurrences of pending, ranked by hidden states.

    Attributes:
        layer: The layer whose outputs are compared, as a share of the target's layers in (0, 1].
        num_tokens: Draft length behind pending, in tokens, in [1, 1024].
        num_candidates: Most candidates, at least 1; distinct ones, from the best places.
    """

    needs = frozenset({"layer_hidden"})
    is_exact = True

    layer: float = 11 / 32
    num_tokens: int = 10
    num_candidates: int = 1
    _states: GrowingStates | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "layer", above=0, most=1)
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)
        check_range(self, "num_candidates", least=1)

    @property
    def hidden_layer(self) -> float:
        """See `layer`."""
        return self.layer

    def begin(self, context: Context) -> None:
        """Starts anew with the states of the prompt."""
        assert context.prompt_layer_hidden is not None
        self._states = GrowingStates(context.prompt_layer_hidden)

    def observe(self, outcome: StepOutcome) -> None:
        """Appends the states of the committed nodes."""
        assert self._states is not None
        assert outcome.layer_hidden is not None
        self._states.append(outcome.layer_hidden)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Distinct continuations by falling cosine, which is their score.

        Returns:
            At most `num_candidates`; none where pending is new or stands first only.
        """
        assert self._states is not None
        ids = context.ids_with_pending
        # One before each place; the newest first, so that a stable sort breaks ties for them.
        before = np.flatnonzero(ids[1:-1] == ids[-1])[::-1].copy()
        if len(before) == 0:
            return []
        cosines = self._states.cosines(before)
        candidates: dict[tuple[int, ...], Candidate] = {}
        for best in np.argsort(-cosines, kind="stable").tolist():
            if len(candidates) >= min(limit, self.num_candidates):
                break
            end = int(before[best]) + 2
            copied = tuple(ids[end : end + self.num_tokens].tolist())
            token_ids = context.until_eos((context.pending_id, *copied))
            if token_ids not in candidates:
                candidates[token_ids] = Candidate(
                    token_ids=token_ids,
                    score=float(cosines[best]),
                    match_len=1,
                    recency=end,
                    source=self.name,
                )
        return list(candidates.values())

    def check_integrity(self) -> None:
        """Checks the states of the text."""
        if self._states is not None:
            self._states.check_integrity()
