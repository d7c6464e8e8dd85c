"""Records that flow between the stages of a decoding step.

Shape letters, the same everywhere:

    s  committed tokens (prompt and output so far, all with rows in the KV cache)
    n  nodes of a draft tree, node 0 included
    v  vocabulary the tokenizer knows (padding rows of the LM head are cut off)
    d  hidden size of the target model
    a  length of an accepted path
    c  tokens of one candidate

A draft tree, its flattened form and its attention mask (row attends to column):

    pending "the" (0)                 node      0  1  2  3          0 1 2 3
      +- "cat" (1)                    token_ids the cat sat dog   0 x . . .
      |    +- "sat" (2)               parents   -1 0  1  0        1 x x . .
      +- "dog" (3)                    depths    0  1  2  1        2 x x x .
                                                                  3 x . . x
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from primitives.random_source import RandomSource

ProposalKind = Literal["point_mass", "iid", "without_replacement"]
"""How the tokens of a draft were chosen.

`point_mass`: a deterministic function of the text so far. `iid`: sampled with replacement from the
`draft_probs` that travel with them. `without_replacement`: siblings sampled without replacement.
"""

ALL_PROPOSALS: frozenset[ProposalKind] = frozenset(get_args(ProposalKind))
"""What a verifier accepts that does not ask how drafts were chosen, or knows all ways."""

ROOT_REASON = "pending"
"""The reason of node 0: it was chosen by the verifier before the draft was looked at."""

MAX_DRAFT_NODES = 1024
"""Most draft nodes of a step; no draft is longer."""

MAX_NGRAM = 64
"""Longest n of what keeps all n-grams of a text, in tokens."""

MAX_CHILDREN = 64
"""Most children that a component drafts below one node."""

PROMPT_TOP_K = 2
"""Most probable tokens per prompt position that a prefill keeps for who asks for them."""

SIBLING_SOURCE = "sibling"
"""Source of draft tokens that the target itself ranked high at prefill, copied from nowhere."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """What a retriever may read before a step.

    Attributes:
        ids_with_pending: The committed ids followed by the pending id; read-only.
        num_prompt_tokens: How many of the committed ids are the prompt, in tokens.
        vocab_size: Ids in [0, vocab_size) may be proposed.
        last_logits: Logits at the last committed position after the sampling law (excluded tokens
            are -inf), if the retriever needs `last_logits`.
        eos_ids: Ids that end a generation: what stands behind one in a candidate is not used.
        last_hidden: Input of the LM head there, if it needs `hidden`.
        prompt_hidden: Inputs of the LM head at all prompt positions, if it needs `prompt_hidden`;
            present in `begin` only.
        prompt_top_ids: Row i holds the most probable tokens behind prompt position i, best first,
            if it needs `prompt_top_ids`; present in `begin` only.
        prompt_layer_hidden: Outputs of the retriever's `hidden_layer` at all prompt positions, if
            it needs `layer_hidden`; present in `begin` only.
        reference_ids: What vanilla answered to this prompt, if it needs `reference`; present in
            `begin` only.
        random: Where drafts are drawn from, if the retriever samples them.
    """

    ids_with_pending: Int[np.ndarray, "s_plus_1"]
    num_prompt_tokens: int
    vocab_size: int
    eos_ids: frozenset[int] = frozenset()
    last_logits: Float[Tensor, "v"] | None = None
    last_hidden: Float[Tensor, "d"] | None = None
    prompt_hidden: Float[Tensor, "s d"] | None = None
    prompt_top_ids: Int[np.ndarray, "s k"] | None = None
    prompt_layer_hidden: Float[Tensor, "s d"] | None = None
    reference_ids: tuple[int, ...] | None = None
    random: RandomSource | None = None

    @property
    def token_ids(self) -> Int[np.ndarray, "s"]:
        """The committed ids."""
        return self.ids_with_pending[:-1]

    def until_eos(self, token_ids: tuple[int, ...]) -> tuple[int, ...]:
        """The ids up to the first EOS, included: what of a continuation can be output."""
        for place, token_id in enumerate(token_ids):
            if token_id in self.eos_ids:
                return token_ids[: place + 1]
        return token_ids

    @property
    def pending_id(self) -> int:
        """The next token: chosen by the verifier, not forwarded yet."""
        return int(self.ids_with_pending[-1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """One proposed continuation of the committed text; its first token competes with pending.

    Attributes:
        token_ids: The continuation, at least one id.
        score: Larger is better; finite. Comparable within one call of `propose` only.
        match_len: Tokens of the context's end (pending included) that the source agreed with; 0
            for sources that do not match tokens.
        recency: Position of the match in its source, larger is later; breaks ties of `score`.
        source: Which retriever, store or rule proposed it.
        count: Occurrences in the source that it stands for, at least 1. A candidate that is the
            prefix of another stands for other occurrences than that one.
        draft_probs: Distributions that the tokens were sampled from; None for a point mass.
            Candidates with them stand in the order in which they were drawn.
        token_probs: Estimated probability of each token given those before it, in [0, 1]; empty
            where the source estimates none. Equal prefixes carry equal estimates.
    """

    token_ids: tuple[int, ...]
    score: float = 0.0
    match_len: int = 0
    recency: int = 0
    source: str = ""
    count: int = 1
    draft_probs: Float[Tensor, "c v"] | None = None
    token_probs: tuple[float, ...] = ()

    def cut(self, length: int) -> Candidate:
        """The first `length` tokens (all of them if it is shorter)."""
        if length >= len(self.token_ids):
            return self
        probs = None if self.draft_probs is None else self.draft_probs[:length]
        return replace(
            self,
            token_ids=self.token_ids[:length],
            draft_probs=probs,
            token_probs=self.token_probs[:length],
        )


def rank_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best first; ties of the score break by recency, then by the smaller token ids.

    Drafts that were sampled keep the order in which they were drawn: ranking siblings by what was
    drawn would bias every rule that tests them one after the other.
    """
    candidates = list(candidates)
    if any(candidate.draft_probs is not None for candidate in candidates):
        return candidates
    return sorted(candidates, key=lambda c: (-c.score, -c.recency, c.token_ids))


@dataclass(frozen=True, kw_only=True, eq=False)
class DraftTree:
    """A draft tree in flattened form; make one with `DraftTree.from_nodes`.

    Attributes:
        token_ids: Ids of the nodes; node 0 is the pending token.
        parents: Index of each node's parent, smaller than its own; -1 at depth 0.
        depths: 0 for node 0 and for alternatives to it; a child is one deeper than its parent.
        sources: Which candidate source each node came from; "" for node 0.
        match_lens: `match_len` of the candidate each node came from, in tokens; 0 for node 0.
        draft_probs: Row i is the distribution that node i was sampled from (the row of node 0 is
            unused); None for point masses.
    """

    token_ids: Int[np.ndarray, "n"]
    parents: Int[np.ndarray, "n"]
    depths: Int[np.ndarray, "n"]
    sources: tuple[str, ...]
    match_lens: tuple[int, ...]
    draft_probs: Float[Tensor, "n v"] | None = None

    @classmethod
    def from_nodes(
        cls,
        token_ids: Sequence[int],
        parents: Sequence[int],
        *,
        sources: Sequence[str] | None = None,
        match_lens: Sequence[int] | None = None,
        draft_probs: Float[Tensor, "n v"] | None = None,
    ) -> DraftTree:
        """Checks the invariants and derives the depths.

        Raises:
            ValueError: If there is no node, a length differs, node 0 has a parent, a parent does
                not come before its child, or two siblings carry the same token.
        """
        num_nodes = len(token_ids)
        if num_nodes == 0:
            raise ValueError("a draft tree has at least node 0, got no nodes")
        sources = [""] * num_nodes if sources is None else sources
        match_lens = [0] * num_nodes if match_lens is None else match_lens
        for field, length in (
            ("parents", len(parents)),
            ("sources", len(sources)),
            ("match_lens", len(match_lens)),
            ("draft_probs", num_nodes if draft_probs is None else len(draft_probs)),
        ):
            if length != num_nodes:
                raise ValueError(
                    f"{field} must have one entry per node ({num_nodes}), got {length}"
                )
        return cls(
            token_ids=_read_only(token_ids),
            parents=_read_only(parents),
            depths=_read_only(_depths(token_ids, parents)),
            sources=tuple(sources),
            match_lens=tuple(match_lens),
            draft_probs=draft_probs,
        )

    @classmethod
    def root_only(cls, pending_id: int) -> DraftTree:
        """The tree without a draft: vanilla decoding."""
        return cls.from_nodes([pending_id], [-1])

    @property
    def num_nodes(self) -> int:
        """Nodes including node 0: the rows of the target forward."""
        return len(self.token_ids)

    @property
    def num_draft_nodes(self) -> int:
        """Nodes other than node 0: proposed, not yet verified."""
        return len(self.token_ids) - 1

    @property
    def is_chain(self) -> bool:
        """Whether every node is the only child of the one before it."""
        return bool(np.array_equal(self.parents, np.arange(-1, self.num_nodes - 1)))

    def children(self) -> list[list[int]]:
        """Per node its children, in index order."""
        children: list[list[int]] = [[] for _ in range(self.num_nodes)]
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                children[parent].append(node)
        return children

    def path_to(self, node: int) -> list[int]:
        """Node indices from depth 0 down to `node`, both included."""
        path = []
        while node >= 0:
            path.append(node)
            node = int(self.parents[node])
        return path[::-1]

    def ancestor_mask(self) -> Bool[np.ndarray, "n n"]:
        """Row i is true at the ancestors of i and at i itself."""
        if self.is_chain:
            return np.tri(self.num_nodes, dtype=bool)
        mask = np.eye(self.num_nodes, dtype=bool)
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                mask[node] |= mask[parent]
        return mask

    def __str__(self) -> str:
        children = self.children()
        lines: list[str] = []
        stack = [node for node in range(self.num_nodes) if self.parents[node] < 0][::-1]
        while stack:
            node = stack.pop()
            lines.append(f"{'  ' * int(self.depths[node])}{node}: token {self.token_ids[node]}")
            stack.extend(children[node][::-1])
        return "\n".join(lines)


def _read_only(values: Sequence[int]) -> Int[np.ndarray, "n"]:
    array = np.array(values, dtype=np.int64)
    array.flags.writeable = False
    return array


def _depths(token_ids: Sequence[int], parents: Sequence[int]) -> list[int]:
    if parents[0] != -1:
        raise ValueError(f"parents[0] must be -1, got {parents[0]}")
    depths: list[int] = []
    seen: set[tuple[int, int]] = set()
    for node, (token_id, parent) in enumerate(zip(token_ids, parents, strict=True)):
        if not -1 <= parent < node:
            raise ValueError(f"parents[{node}] must be in [-1, {node}), got {parent}")
        if (parent, token_id) in seen:
            raise ValueError(f"siblings must be distinct, node {node} repeats token {token_id}")
        seen.add((parent, token_id))
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return depths


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a verifier decided about one tree.

    Attributes:
        path: Kept node indices: starts at depth 0, each the child of the one before; at least one.
        next_id: The next pending token, chosen at the end of the path.
        reasons: Why each node of the path was kept: `pending` for node 0, `em` for an exact match,
            or a word of the verifier's own.
        regrets: Per node of the path, log p(argmax) - log p(token) in nats under the target's law
            at its parent; 0 for exact matches. Empty if all are 0.
        regret_bounds: Per node of the path, the most regret that the rule allows there, in nats;
            0 where only exact matches pass. Empty if the rule has no bound.
        num_exact: Nodes that exact match would have kept of this tree, node 0 included; None if it
            is the path itself.
    """

    path: tuple[int, ...]
    next_id: int
    reasons: tuple[str, ...]
    regrets: tuple[float, ...] = ()
    regret_bounds: tuple[float, ...] = ()
    num_exact: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StepOutcome:
    """What a retriever learns from a step, after commit and clip.

    Attributes:
        token_ids: The newly committed ids.
        pending_id: The next pending id; None if the output ended within the path.
        tree: The tree that was verified.
        path: The committed nodes of it.
        hidden: Inputs of the LM head at the committed nodes, if the retriever needs `hidden`.
        layer_hidden: Outputs of its `hidden_layer` there, if it needs `layer_hidden`.
        node_top_ids: The `num_top_ids` most probable tokens behind every node of the tree, kept or
            not, best first, if it needs `node_top_ids`.
    """

    token_ids: Int[np.ndarray, "a"]
    pending_id: int | None
    tree: DraftTree
    path: tuple[int, ...]
    hidden: Float[Tensor, "a d"] | None = None
    layer_hidden: Float[Tensor, "a d"] | None = None
    node_top_ids: Int[np.ndarray, "n k"] | None = None
