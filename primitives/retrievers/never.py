"""Never: no candidates, so that a method with it is vanilla decoding with a retriever beside it.

Source: a control: what is left of a speedup of 1 is the cost of asking.
Cost: O(1).
"""

from __future__ import annotations

from dataclasses import dataclass

from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.types import Candidate, Context


@RETRIEVERS.register("never")
@dataclass(kw_only=True)
class Never(Retriever):
    """Proposes nothing."""

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """An empty list."""
        return []
