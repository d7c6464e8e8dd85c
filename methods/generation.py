"""What a generation is made of, and what it leaves behind: when it stops, its steps, its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from methods.screening import num_prefixes
from primitives.types import Candidate, DraftTree, Verdict

FinishReason = Literal["eos", "length"]
Phase = Literal["prefill", "propose", "build", "forward", "verify", "commit", "observe"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When a generation ends.

    Attributes:
        max_new_tokens: Output budget in tokens, at least 1.
        eos_ids: Ids that end it; the first one is part of the output.
    """

    max_new_tokens: int
    eos_ids: frozenset[int]

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be ≥ 1, got {self.max_new_tokens}")

    def clip(
        self, token_ids: Sequence[int], num_before: int
    ) -> tuple[list[int], FinishReason | None]:
        """What of `token_ids` is output, and whether the generation ends with it.

        Args:
            token_ids: New tokens.
            num_before: Output tokens so far.

        Returns:
            The tokens up to the first EOS (included) and within the budget; the reason to stop.
        """
        kept = list(token_ids[: self.max_new_tokens - num_before])
        for position, token_id in enumerate(kept):
            if token_id in self.eos_ids:
                return kept[: position + 1], "eos"
        return kept, "length" if num_before + len(kept) >= self.max_new_tokens else None


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One decoding step: one target forward after the prefill, with or without a draft.

    Attributes:
        num_draft_nodes: Tree nodes besides node 0.
        num_accepted: Draft nodes that were kept and are part of the output.
        num_output: Output tokens that the step newly determined, after clipping.
        num_strict: Those that exact match would have determined with the same tree.
        reasons: Why each committed node was kept.
        sources: Where each committed node came from; "" for node 0.
        match_len: Longest `match_len` among the draft nodes, in tokens.
        draft_depth: Depth of the deepest draft node.
        candidate_tokens: Tokens of all candidates that the tree was built from.
        candidate_nodes: Nodes of their whole prefix tree, before the node budget cut it.
        regrets: As in `Verdict`, of the committed nodes.
        regret_bounds: As in `Verdict`, of the committed nodes.
        num_below: Draft nodes right below the last committed node: looked at and refused, unless
            EOS or the budget cut the path there.
        tree: The draft tree.
        path: Its committed nodes.
    """

    num_draft_nodes: int
    num_accepted: int
    num_output: int
    num_strict: int
    reasons: tuple[str, ...]
    sources: tuple[str, ...]
    match_len: int
    draft_depth: int
    candidate_tokens: int
    candidate_nodes: int
    regrets: tuple[float, ...]
    regret_bounds: tuple[float, ...]
    num_below: int
    tree: DraftTree = field(repr=False, compare=False)
    path: tuple[int, ...]

    @classmethod
    def of(
        cls,
        tree: DraftTree,
        verdict: Verdict,
        *,
        path: tuple[int, ...],
        num_output: int,
        candidates: Sequence[Candidate],
    ) -> StepRecord:
        """The record of a step that has ended.

        Args:
            tree: The draft tree.
            verdict: What the verifier decided about it.
            path: The committed nodes: the verdict's path, or its beginning if the output ended.
            num_output: Output tokens that the step newly determined, after clipping.
            candidates: What the tree was built from.
        """
        return cls(
            num_draft_nodes=tree.num_draft_nodes,
            num_accepted=sum(node != 0 for node in path),
            num_output=num_output,
            num_strict=min(verdict.num_exact or len(path), num_output),
            reasons=verdict.reasons[: len(path)],
            sources=tuple(tree.sources[node] for node in path),
            match_len=max(tree.match_lens),
            draft_depth=int(tree.depths.max()),
            candidate_tokens=sum(len(c.token_ids) for c in candidates),
            candidate_nodes=num_prefixes(candidates),
            regrets=verdict.regrets[: len(path)],
            regret_bounds=verdict.regret_bounds[: len(path)],
            num_below=int((tree.parents == path[-1]).sum()),
            # Proposal distributions are as wide as the vocabulary: too large to keep.
            tree=tree if tree.draft_probs is None else replace(tree, draft_probs=None),
            path=path,
        )


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What one prompt gave.

    Attributes:
        output_ids: At least one id; ends with EOS if that ended it.
        finish_reason: `eos` or `length`.
        steps: One record per decoding step.
    """

    output_ids: tuple[int, ...]
    finish_reason: FinishReason
    steps: tuple[StepRecord, ...]


class Probe:
    """Looks on while the loop runs; this one does nothing. The runner derives its clock from it."""

    def end_phase(self, phase: Phase) -> None:
        """A phase has just ended."""

    def end_step(self, step: StepRecord) -> None:
        """A step has just ended."""
