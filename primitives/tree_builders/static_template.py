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
from primitives.structures.candidate_trie import CandidateTrie
from primitives.structures.rank_templates import Node, Template, rank_template
from primitives.types import Candidate, DraftTree


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
        trie = CandidateTrie(pending_id, candidates)
        children = trie.children()
        placed: dict[Node, int] = {(): 0}
        for node in self._nodes:
            if len(placed) > budget:
                break
            parent = placed.get(node[:-1])
            if parent is not None and node[-1] < len(children[parent]):
                placed[node] = children[parent][node[-1]]
        return trie.to_tree(set(placed.values()) - {0})
