"""SuffixDecoding: the most frequent continuation, in the request's text or in earlier outputs.

Two suffix trees count strings: a local one those of the prompt and the output so far, a global one
those of all outputs. Each match of the text's end, pending included, may draft a chain of most
frequent children (or the tree of the most probable nodes); longer matches may draft more.

    draft nodes <= min(num_tokens, floor(factor * match_len + offset))
    draft depth <= max_depth - match_len
    score        = sum over draft nodes of the product of count / count of the parent on its path

The draft of the best score is proposed; ties go to the longer match, then to the local tree.

Source: SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975), and the authors' code
(ArcticInference 0.3.0, suffix_decoding), whose defaults and counts these are; `max_cached_requests`
is that of its vLLM plug-in.
Cost: O(max_depth) per observed token at most; per propose a few states per tree times the draft's
length. The global tree takes 140 to 280 bytes per token.
Deviations: of equally frequent children the one that was seen last is followed. The text's end
counts as an occurrence of itself with nothing behind it, as in the authors' code, so that what
occurred once before is estimated at 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from primitives.fields import check_range, check_words
from primitives.interfaces import Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.draft_nodes import DraftNodes
from primitives.structures.suffix_tree import SuffixTree
from primitives.types import MAX_DRAFT_NODES, Candidate, Context, StepOutcome


@RETRIEVERS.register("suffix_tree")
@dataclass(kw_only=True)
class SuffixTreeRetriever(Retriever):
    """Most frequent continuations of all matches, in two suffix trees.

    Attributes:
        max_depth: Longest string that is counted, match and draft together, in tokens, at least 2.
        max_cached_requests: Outputs that the global tree holds, the current one included; the
            oldest is forgotten first. None for no limit, 0 for no global tree.
        include_current: Whether the output so far is in the global tree, as in the authors' code;
            otherwise it gets there when the request is over.
        num_tokens: Most draft nodes, in [1, 1024].
        factor: Draft nodes per matched token, at least 0.
        offset: Draft nodes besides, in tokens; may be negative.
        min_token_prob: Least estimated probability of a node, its path's, in [0, 1].
        draft: The most frequent `path`, or the `tree` of the most probable nodes.
    """

    is_cross_request = True

    max_depth: int = 64
    max_cached_requests: int | None = 100_000
    include_current: bool = True
    num_tokens: int = 64
    factor: float = 1.0
    offset: float = 0.0
    min_token_prob: float = 0.1
    draft: Literal["path", "tree"] = "path"
    _local: SuffixTree | None = field(default=None, init=False, repr=False, compare=False)
    _global: SuffixTree | None = field(default=None, init=False, repr=False, compare=False)
    _num_prompt: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_words(self)
        check_range(self, "max_depth", least=2)
        check_range(self, "num_tokens", least=1, most=MAX_DRAFT_NODES)
        if self.max_cached_requests is not None:
            check_range(self, "max_cached_requests", least=0)
        check_range(self, "factor", least=0, below=math.inf)
        check_range(self, "offset", above=-math.inf, below=math.inf)
        check_range(self, "min_token_prob", least=0, most=1)
        if self.max_cached_requests == 0:
            self.is_cross_request = False

    def begin(self, context: Context) -> None:
        """Starts a request: its prompt is known to the local tree only."""
        if self.max_cached_requests != 0:
            self._start_request(context.pending_id)
        self._num_prompt = len(context.token_ids)
        self._local = SuffixTree(self.max_depth, 2 * self._num_prompt)
        self._local.extend(context.ids_with_pending)

    def observe(self, outcome: StepOutcome) -> None:
        """Counts the new tokens; the first one was counted when it became pending."""
        assert self._local is not None
        first, *new = outcome.token_ids.tolist()
        if outcome.pending_id is not None:
            new.append(outcome.pending_id)
        # A verifier may have kept an alternative to what was pending.
        is_other = first != self._local.text[-1]
        for tree in (self._local, self._global if self.include_current else None):
            if tree is not None:
                if is_other:
                    tree.retract()
                tree.extend([first, *new] if is_other else new)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """The path, or the paths of the tree, by the expected number of accepted tokens."""
        assert self._local is not None
        best, source = self._draft(self._local, self._local.open_match()), "local"
        if self._global is not None:
            # A match leaves out the first token of the context, which is cut to the depth.
            num = min(len(context.ids_with_pending), self.max_depth) - 1
            end = context.ids_with_pending[len(context.ids_with_pending) - num :]
            other = self._draft(self._global, self._global.longest_match(end))
            if other.score > best.score:
                best, source = other, "global"
        return [
            Candidate(
                token_ids=(context.pending_id, *path.token_ids),
                score=path.score,
                match_len=best.match_len,
                recency=path.recency,
                source=source,
                count=path.num_occurrences,
                token_probs=(1.0, *path.token_probs),
            )
            for path in best.paths(context.eos_ids)[:limit]
        ]

    def reset(self) -> None:
        """Forgets all outputs."""
        self._local = self._global = None

    def check_integrity(self) -> None:
        """Checks both trees."""
        for tree in (self._local, self._global):
            if tree is not None:
                tree.check_integrity()

    def _start_request(self, pending_id: int) -> None:
        if self._global is None:
            self._global = SuffixTree(self.max_depth)
        elif self._local is not None:
            if not self.include_current:
                self._global.extend(np.array(self._local.text[self._num_prompt :]))
            self._global.end_sequence()
        num_open = 0 if self.include_current else 1
        limit = self.max_cached_requests
        while limit is not None and self._global.num_sequences - num_open > limit:
            self._global.forget_oldest()
        if self.include_current:
            self._global.extend([pending_id])

    def _draft(self, tree: SuffixTree, match: tuple[int, int]) -> DraftNodes:
        return tree.draft(
            match,
            num_tokens=self.num_tokens,
            factor=self.factor,
            offset=self.offset,
            min_prob=self.min_token_prob,
            is_tree=self.draft == "tree",
        )
