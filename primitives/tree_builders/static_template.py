"""Static template: a fixed shape whose nodes are filled with candidates by rank among siblings.

Candidates are merged by their common prefixes. The children of a node are ranked by the order in
which candidates bring them, best candidate first; a node is kept if its ranks are in the template.

Source: the static trees of Medusa (Cai et al. 2024, arXiv 2401.10774, section 2.3.3) and Token
Recycling (Luo et al. 2024, arXiv 2408.08696).
Cost: O(total candidate length + nodes of the template) per build.
Deviations: where a candidate is missing its node stays empty, and so does what is below it; of more
nodes than the budget, the first ones of the template are kept. Alternatives to pending have no rank
and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from primitives.interfaces import TreeBuilder
from primitives.registry import TREE_BUILDERS
from primitives.structures.origin_tree import tree_of_origins
from primitives.structures.rank_templates import Node, Template, rank_template
from primitives.types import Candidate, DraftTree, rank_candidates

Path = tuple[int, ...]


@TREE_BUILDERS.register("static_template")
@dataclass(kw_only=True, frozen=True)
class StaticTemplate(TreeBuilder):
    """Those nodes of the candidates' prefix tree that a template has.

    Attributes:
        template: `token_recycling` (80 nodes, up to 6 deep), or a list of nodes, each a list of
            ranks on the way to it, 0 the best; parents and better siblings stand first.
    """

    is_monotone = True

    template: Literal["token_recycling"] | list[list[int]] = "token_recycling"
    _nodes: Template = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_nodes", rank_template(self.template))

    def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
        """Node 0 and the first `budget` nodes of the template that have a token."""
        children = _ranked_children(pending_id, candidates)
        # Per node of the template its tokens from pending on, and its number in the tree.
        placed: dict[Node, tuple[Path, int]] = {(): ((pending_id,), 0)}
        parents, origins = [-1], list[Candidate]()
        for node in self._nodes:
            if len(placed) > budget:
                break
            path, number = placed.get(node[:-1], ((), 0))
            below = children.get(path, [])
            if node[-1] < len(below):
                token_id, origin = below[node[-1]]
                placed[node] = ((*path, token_id), len(placed))
                parents.append(number)
                origins.append(origin)
        return tree_of_origins([path[-1] for path, _ in placed.values()], parents, origins)


def _ranked_children(
    pending_id: int, candidates: Sequence[Candidate]
) -> dict[Path, list[tuple[int, Candidate]]]:
    """Per path from pending on, the tokens behind it, each with the best candidate through it."""
    children: dict[Path, list[tuple[int, Candidate]]] = {}
    seen: set[Path] = set()
    for candidate in rank_candidates(candidates):
        token_ids = candidate.token_ids
        if token_ids[0] != pending_id:
            continue
        for length in range(1, len(token_ids)):
            path = token_ids[: length + 1]
            if path not in seen:
                seen.add(path)
                children.setdefault(token_ids[:length], []).append((token_ids[length], candidate))
    return children
