"""A small causal model drafts what the target will say.

It continues the text by itself: with its most probable tokens (point masses), or with samples that
carry the distributions q which they were drawn from, so that a verifier for sampling can compare
them with the target's p. `chain` is one continuation of `num_tokens` tokens. `tree` with `greedy`
drafts grows the best nodes of each level and keeps the most probable ones of all; with sampled
drafts each node has `top_k` children, for as long as `total_nodes` and the candidates allow.

Source: Leviathan et al. 2023 (arXiv 2211.17192, algorithm 1), Chen et al. 2023 (arXiv 2302.01318,
algorithm 2); the `tree` of EAGLE-2 (Li et al. 2024, arXiv 2406.16858, section 4); `heuristic`: the
schedule of that name in Hugging Face transformers (generation/candidate_generator.py).
Cost: num_tokens forwards of the draft model per propose, of one row (chain) or up to top_k rows
(greedy tree); the first has one row more after a step that kept the whole draft. Nothing per
observe. `begin` forwards the prompt.
Deviations: the tree of EAGLE-2 is fed by its own draft head, here by any model. Its shipped sizes
(depth 7, which makes 8 levels, top_k 10, 59 nodes beside the root) are for GPUs; `num_tokens` is
the number of levels. Sampled trees have a fixed shape: choosing nodes by what was drawn would bias
the verifier. `heuristic` begins anew with each prompt, as `heuristic_transient` does. What does not
fit into the draft model's context is not drafted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from primitives.fields import check_range, check_words
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.draft_growth import DraftNode, Shape, grow_best
from primitives.structures.draft_samples import Sampler, grow_samples
from primitives.structures.draft_text import DraftingModel, DraftText
from primitives.types import MAX_CHILDREN, MAX_DRAFT_NODES, Candidate, Context, StepOutcome

MORE, FEWER = 2, 1
"""How the heuristic schedule changes the length of a draft, in tokens."""


@RETRIEVERS.register("draft_model")
@dataclass(kw_only=True)
class DraftModel(Retriever):
    """Continuations by a draft model.

    Attributes:
        shape: One continuation (`chain`), or a `tree` of them.
        drafts: The most probable tokens (`greedy`), or samples: siblings `iid`, where equal ones
            become one node, or `without_replacement`.
        num_tokens: Draft length, or depth of the tree, in tokens, in [1, 1024].
        schedule: `constant`, or `heuristic`: 2 tokens more after a step that kept as many as it
            asked for, 1 fewer otherwise (also where the node budget was smaller), at least 1.
        top_k: Children per expanded node of a tree, and in a greedy one expanded nodes per level,
            in [1, 64].
        total_nodes: Most draft nodes of a tree, in [1, 1024].
        temperature: Of the law that samples are drawn from, above 0; any value is lossless, that of
            the run is accepted most.
    """

    needs_draft_model = True

    shape: Literal["chain", "tree"] = "chain"
    drafts: Literal["greedy", "iid", "without_replacement"] = "greedy"
    num_tokens: int = 5
    schedule: Literal["constant", "heuristic"] = "constant"
    top_k: int = 10
    total_nodes: int = 60
    temperature: float = 1.0
    _text: DraftText | None = field(default=None, init=False, repr=False, compare=False)
    _length: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_words(self)
        check_range(self, "num_tokens", "total_nodes", least=1, most=MAX_DRAFT_NODES)
        check_range(self, "top_k", least=1, most=MAX_CHILDREN)
        check_range(self, "temperature", above=0, below=math.inf)
        if self.drafts != "greedy":
            self.proposal = self.drafts
        self._length = self.num_tokens

    def attach_draft_model(self, model: DraftingModel) -> None:
        """Hands over the draft model; its cache belongs to this retriever from now on."""
        self._text = DraftText(model)

    def begin(self, context: Context) -> None:
        """Forwards the prompt through the draft model.

        Raises:
            RuntimeError: If no draft model was attached.
        """
        self._length = self.num_tokens
        if self._text is not None:
            self._text.clear()
        self._follow(context, self._length)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """One continuation, or the leaves of a tree; none beyond the draft model's context.

        Returns:
            Greedy drafts by falling log-probability of the whole, which is their score; sampled
            ones in the order in which they were drawn, all with score 0.

        Raises:
            RuntimeError: If no draft model was attached.
        """
        depth = self._follow(context, self._length)
        if depth < 1 or limit < 1:
            return []
        assert self._text is not None
        row, logits = self._text.start(context.ids_with_pending)
        root = DraftNode(token_id=context.pending_id, row=row)
        leaves = self._grow(root, logits[None, : context.vocab_size], context, depth, limit)
        return [self._candidate(leaf) for leaf in leaves if leaf is not root]

    def observe(self, outcome: StepOutcome) -> None:
        """Sets the length of the next draft; the cache follows when it is asked again."""
        if self.schedule == "heuristic" and outcome.tree.num_draft_nodes:
            is_whole = len(outcome.path) - 1 >= self._length
            self._length = self._length + MORE if is_whole else max(self._length - FEWER, 1)

    def _follow(self, context: Context, depth: int) -> int:
        """Brings the draft model in step with the text; how deep it can draft, at most `depth`."""
        if self._text is None:
            raise RuntimeError(f"retriever {self.name!r} has no draft model: attach one")
        room = self._text.num_positions(context.ids_with_pending)
        depth = depth if room is None else min(depth, room)
        if depth < 1 or not len(context.token_ids):
            return 0
        is_wide = self.shape == "tree" and self.drafts != "greedy"
        num_nodes = self.total_nodes if is_wide else depth * self._width
        self._text.follow(context.token_ids, num_nodes)
        return depth

    @property
    def _width(self) -> int:
        return self.top_k if self.shape == "tree" else 1

    def _grow(
        self,
        root: DraftNode,
        logits: Float[Tensor, "1 v"],
        context: Context,
        depth: int,
        limit: int,
    ) -> list[DraftNode]:
        total = self.total_nodes if self.shape == "tree" else None
        shape = Shape(depth=depth, width=self._width, total=total, max_leaves=limit)

        def forward(nodes: Sequence[DraftNode]) -> Float[Tensor, "m v"]:
            assert self._text is not None
            parents = [node.parent.row for node in nodes if node.parent]
            rows, logits = self._text.grow([node.token_id for node in nodes], parents)
            for node, row in zip(nodes, rows, strict=True):
                node.row = row
            return logits[:, : context.vocab_size]

        if self.drafts == "greedy":
            return grow_best(root, logits, forward, shape, context.eos_ids)
        assert context.random is not None
        sampler = Sampler(
            random=context.random,
            temperature=self.temperature,
            with_replacement=self.drafts == "iid",
        )
        return grow_samples(root, logits, forward, shape, context.eos_ids, sampler)

    def _candidate(self, leaf: DraftNode) -> Candidate:
        path = leaf.path
        token_ids = tuple(node.token_id for node in path)
        laws = [node.law for node in path if node.law is not None]
        if not laws:
            probs = tuple(node.prob for node in path)
            return Candidate(
                token_ids=token_ids, score=leaf.log_prob, source=self.name, token_probs=probs
            )
        # No `token_probs`: a builder that chose samples by them would bias the verifier.
        draft_probs = torch.stack([torch.zeros_like(laws[0]), *laws])
        return Candidate(token_ids=token_ids, source=self.name, draft_probs=draft_probs)
