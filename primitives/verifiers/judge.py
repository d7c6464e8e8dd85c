"""Judge decoding: a trained head may pass a drafted token that is not the argmax.

A draft token x is kept if all of its ancestors are, and it is the argmax or

    sigmoid(w · h + b) > threshold

h being the target's last hidden state at x itself, after reading it: a state that has seen the
token tells better whether it will do than the law that it was judged by.

Source: Judge decoding (Bachmann et al. 2025, arXiv 2501.19309), a linear head OR'ed with the
standard rule; with labels that no person has to give it is AutoJudge (Garipov et al. 2025, arXiv
2504.20039; repository garipovroma/autojudge, the setup that sees the target's state only).
Cost: one argmax over [n, v]; per depth with mismatches one softmax over their parents' rows and one
product of the head with their hidden states [m, d].
Deviations: the standard rule is exact match: greedy decoding only. The threshold belongs to a head
and to how much a user wants to lose: scripts/train_judge.py prints one, the default is the even
odds. AutoJudge's head gives the probability that a token matters, ours that it does not.
`eos_requires_em` is ours. There is no bound of the regret: the head does not look at the law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from primitives.fields import check_range
from primitives.interfaces import Verifier
from primitives.random_source import RandomSource
from primitives.registry import VERIFIERS
from primitives.structures.relaxed_rules import may_relax
from primitives.structures.relaxed_walk import Mismatches, RelaxedWalk
from primitives.types import ALL_PROPOSALS, DraftTree, Verdict

JudgeHead = Callable[[Tensor], Tensor]
"""Hidden states [n d] -> the probability [n] that the token at each will do."""


@VERIFIERS.register("judge")
@dataclass(kw_only=True, frozen=True)
class Judge(Verifier):
    """Exact matches, and tokens that a trained head finds good enough.

    Attributes:
        head: File of the trained head; it is opened outside and handed over by `attach`.
        threshold: The head's probability must be above it, in [0, 1]; at 1 exact match.
        eos_requires_em: Keep no mismatch that is an EOS or stands where the argmax is one.
    """

    needs = frozenset({"hidden", "head"})
    valid_proposals = ALL_PROPOSALS

    head: str | None = None
    threshold: float = 0.5
    eos_requires_em: bool = True
    _head: JudgeHead | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "threshold", least=0, most=1)

    def attach(self, **resources: Any) -> None:
        """Hands over the `head`, a `JudgeHead`.

        Raises:
            TypeError: If anything else is handed over, or it cannot be called.
        """
        if set(resources) != {"head"}:
            return super().attach(**resources)
        if not callable(resources["head"]):
            raise TypeError(f"head must be callable, got {resources['head']!r}")
        object.__setattr__(self, "_head", resources["head"])

    def verify(
        self,
        tree: DraftTree,
        last_logits: Float[Tensor, "v"],
        logits: Float[Tensor, "n v"],
        random: RandomSource,
        eos_ids: frozenset[int] = frozenset(),
        hidden: Float[Tensor, "n d"] | None = None,
    ) -> Verdict:
        """The longest path of matches and good mismatches; not from alternatives to node 0.

        Raises:
            ValueError: If there is no head, or there are no hidden states.
        """
        if self._head is None:
            raise ValueError("verifier 'judge' needs a trained head: attach it first")
        if hidden is None:
            raise ValueError("verifier 'judge' needs the hidden states of the nodes, got none")
        head, states = self._head, hidden

        def reasons(mismatches: Mismatches) -> np.ndarray:
            is_kept = may_relax(mismatches, eos_ids, eos_requires_em=self.eos_requires_em)
            if is_kept.any():
                probs = head(states[mismatches.nodes.tolist()]).double().cpu().numpy()
                is_kept &= probs > self.threshold
            return np.where(is_kept, "judge", "")

        return RelaxedWalk(tree, last_logits, logits).verdict(reasons)
