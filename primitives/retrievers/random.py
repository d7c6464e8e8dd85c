"""Random tokens: the floor, what drafts cost that are nearly never right.

Source: a control; the test with a random draft tree of 1 / vocab_size accuracy per token.
Cost: O(s) to hash the text and O(num_candidates * num_tokens) per propose, nothing per observe.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from primitives.fields import check_range
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.types import MAX_DRAFT_NODES, Candidate, Context


@RETRIEVERS.register("random")
@dataclass(kw_only=True)
class RandomTokens(Retriever):
    """Uniform tokens, a function of the text so far.

    Attributes:
        num_tokens: Draft length, in tokens, in [1, 1024].
        num_candidates: Most drafts per step, at least 1.
        seed: Gives other tokens for the same text, at least 0.
    """

    num_tokens: int = 10
    num_candidates: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)
        check_range(self, "num_candidates", least=1)
        check_range(self, "seed", least=0)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """Drafts that end at an EOS; all score alike."""
        # A deterministic draft is a point mass: a source that depends on no draw keeps it lossless.
        text_hash = zlib.crc32(context.ids_with_pending.tobytes())
        random = np.random.default_rng([self.seed, text_hash])
        shape = (min(self.num_candidates, limit), self.num_tokens)
        drafts = random.integers(context.vocab_size, size=shape).tolist()
        return [
            Candidate(token_ids=context.until_eos((context.pending_id, *draft)), source=self.name)
            for draft in drafts
        ]
