"""Token Recycling: what the target last ranked behind a token, wherever it stood in a draft tree.

A matrix keeps the most probable successors of every token as the target last saw them, after nodes
of draft trees that were kept or not. A fixed template of ranks is filled from it:

    token of node (r1, .., rk) = matrix[token of node (r1, .., rk-1)][rk]

Source: Luo et al. 2024, Token Recycling (arXiv 2408.08696), section 3; repository
Luowaterbi/TokenRecycling (8 successors, 80 nodes, the matrix is never emptied between requests).
Cost: O(nodes of the template) per propose; O(n * num_successors) per observe of n nodes, and a
ranking of their logits; `num_successors` ids per token of the vocabulary.
Deviations: rows that were never written propose nothing, where the original drafts token 0. Where
a token is in a tree several times, the deepest node decides, and of the deepest ones the last: the
code's order, but for nodes of one depth. `learn_prompt` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Int

from primitives.fields import check_range
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.rank_templates import Node, Template, rank_template
from primitives.types import MAX_CHILDREN, Candidate, Context, StepOutcome

COLD = -1


@RETRIEVERS.register("token_recycling")
@dataclass(kw_only=True)
class TokenRecycling(Retriever):
    """Successors of tokens by rank, as a template asks for them.

    Attributes:
        num_successors: Successors that are kept per token, in [1, 64].
        template: Which are drafted: `token_recycling` (80 nodes), or a list of nodes, each a list
            of ranks on the way to it, parents and better siblings first; what the builder
            `static_template` is to place has to be in it.
        learn_prompt: Whether the two most probable tokens behind each prompt position are put
            before what the matrix holds.
    """

    needs = frozenset({"node_top_ids"})
    is_cross_request = True

    num_successors: int = 8
    template: Literal["token_recycling"] | list[list[int]] = "token_recycling"
    learn_prompt: bool = False
    _nodes: Template = field(init=False, repr=False, compare=False)
    _matrix: Int[np.ndarray, "v k"] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_range(self, "num_successors", least=1, most=MAX_CHILDREN)
        self._nodes = rank_template(self.template)
        if self.learn_prompt:
            self.needs = frozenset({"node_top_ids", "prompt_top_ids"})

    @property
    def num_top_ids(self) -> int:
        """As many as a row of the matrix holds."""
        return self.num_successors

    def begin(self, context: Context) -> None:
        """Keeps the matrix, unless the vocabulary is another one."""
        if self._matrix is None or len(self._matrix) != context.vocab_size:
            shape = (context.vocab_size, self.num_successors)
            self._matrix = np.full(shape, COLD, dtype=np.int32)
        if self.learn_prompt and context.prompt_top_ids is not None:
            _put_first(self._matrix, context.token_ids, context.prompt_top_ids)

    def observe(self, outcome: StepOutcome) -> None:
        """Overwrites the rows of all tokens of the tree."""
        assert self._matrix is not None
        assert outcome.node_top_ids is not None
        top_ids = outcome.node_top_ids[:, : self.num_successors]
        by_depth = np.argsort(outcome.tree.depths, kind="stable")
        # Of a token that occurs several times the last row is the one that stays.
        self._matrix[outcome.tree.token_ids[by_depth], : top_ids.shape[1]] = top_ids[by_depth]

    def reset(self) -> None:
        """Empties the matrix."""
        self._matrix = None

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """One candidate per node of the template that has a token, in the template's order.

        Returns:
            Prefixes of each other, so that siblings appear by rank; scores count down.
        """
        if self._matrix is None:
            return []
        paths: dict[Node, tuple[int, ...]] = {(): (context.pending_id,)}
        rows: dict[int, list[int]] = {}
        for node in self._nodes:
            if len(paths) > limit:
                break
            path = paths.get(node[:-1])
            if path is None or (len(path) > 1 and path[-1] in context.eos_ids):
                continue
            row = rows.get(path[-1])
            if row is None:
                row = rows[path[-1]] = self._matrix[path[-1]].tolist()
            if node[-1] < len(row) and row[node[-1]] != COLD:
                paths[node] = (*path, row[node[-1]])
        return [
            Candidate(token_ids=path, score=-float(place), match_len=1, source=self.name)
            for place, path in enumerate(list(paths.values())[1:])
        ]


def _put_first(
    matrix: Int[np.ndarray, "v k"], ids: Int[np.ndarray, "s"], top_ids: Int[np.ndarray, "s t"]
) -> None:
    """Puts the top ids at a token's last place in a text before the others of its row."""
    token_ids, last = _last_places(ids)
    new, old = top_ids[last], matrix[token_ids]
    old[(old[:, :, None] == new[:, None, :]).any(axis=2)] = COLD
    order = np.argsort(old == COLD, axis=1, kind="stable")
    rows = np.concatenate([new, np.take_along_axis(old, order, axis=1)], axis=1)
    matrix[token_ids] = rows[:, : matrix.shape[1]]


def _last_places(ids: Int[np.ndarray, "s"]) -> tuple[Int[np.ndarray, "u"], Int[np.ndarray, "u"]]:
    """The distinct tokens of a text and where each stands last."""
    token_ids, from_end = np.unique(ids[::-1], return_index=True)
    return token_ids, len(ids) - 1 - from_end
