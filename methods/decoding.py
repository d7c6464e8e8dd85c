"""The decode loop, the only one: vanilla decoding is the same loop with no retriever.

    propose -> screen -> build -> forward -> verify -> commit -> clip -> observe

The first token comes from the prefill and belongs to no step. A step is credited with the tokens
that it newly determines: the path behind its first node and the next pending token. So the tokens
of all steps sum to N - 1 for N output tokens, however the generation ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from methods.generation import FinishReason, Generation, Probe, StepRecord, StopRule
from methods.sampling import SamplingLaw
from methods.screening import usable_part
from methods.targets.base import StepOutput, TargetModel, TreeOutput
from primitives.fields import check_range
from primitives.interfaces import Retriever, TreeBuilder, Verifier
from primitives.random_source import RandomSource
from primitives.structures.top_tokens import top_tokens
from primitives.types import (
    MAX_DRAFT_NODES,
    Candidate,
    Context,
    DraftTree,
    StepOutcome,
    Verdict,
)

MAX_CANDIDATES = 4096
"""Most candidates of a step."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Method:
    """Three primitives and a node budget.

    Attributes:
        name: What results are filed under.
        retriever: None decodes without drafts.
        tree_builder: Packs candidates into a tree.
        verifier: The acceptance rule.
        node_budget: Most draft nodes per step, in [0, `MAX_DRAFT_NODES`].
        max_candidates: Most candidates per step, in [1, `MAX_CANDIDATES`].
    """

    name: str
    retriever: Retriever | None
    tree_builder: TreeBuilder
    verifier: Verifier
    node_budget: int
    max_candidates: int

    def __post_init__(self) -> None:
        # A budget is memory: the cache of the target model keeps a row per draft node.
        check_range(self, "node_budget", least=0, most=MAX_DRAFT_NODES)
        check_range(self, "max_candidates", least=1, most=MAX_CANDIDATES)


def decode(
    prompt_ids: Sequence[int],
    *,
    target: TargetModel,
    method: Method,
    stop: StopRule,
    law: SamplingLaw,
    random: RandomSource,
    probe: Probe | None = None,
    reference_ids: Sequence[int] | None = None,
) -> Generation:
    """Continues a prompt.

    Args:
        prompt_ids: At least one id.
        target: The target model; its cache is reset first.
        method: What is drafted and what is kept.
        stop: When to end.
        law: Applied to logits before the verifier sees them.
        random: Every random choice of verifier and law comes from here.
        probe: Told about the end of each phase and step.
        reference_ids: What vanilla answers, for a retriever that needs to know.

    Raises:
        ContextOverflow: If the prompt and the budget do not fit the target model.
        ValueError: If the prompt is empty or holds an id outside the vocabulary, or the verifier
            keeps nodes that are no path of the tree.
    """
    loop = _Loop(target, method, stop, law, random, probe or Probe(), reference_ids)
    with torch.inference_mode():
        loop.prefill(prompt_ids)
        while loop.finish_reason is None:
            loop.step()
    return Generation(
        output_ids=tuple(loop.output_ids),
        finish_reason=loop.finish_reason,
        steps=tuple(loop.steps),
    )


class _Loop:
    """State of one generation between steps."""

    def __init__(
        self,
        target: TargetModel,
        method: Method,
        stop: StopRule,
        law: SamplingLaw,
        random: RandomSource,
        probe: Probe,
        reference_ids: Sequence[int] | None,
    ) -> None:
        self.target, self.method, self.stop = target, method, stop
        self.law, self.random, self.probe = law, random, probe
        self.needs = method.retriever.needs if method.retriever else frozenset()
        self.reference_ids = None if reference_ids is None else tuple(reference_ids)
        self.output_ids: list[int] = []
        self.steps: list[StepRecord] = []
        self.finish_reason: FinishReason | None = None

    def prefill(self, prompt_ids: Sequence[int]) -> None:
        self.num_prompt_tokens = len(prompt_ids)
        self.target.reset()
        out = self.target.prefill(
            prompt_ids,
            reserve=self.stop.max_new_tokens,
            draft_rows=self.method.node_budget,
            prompt_hidden="prompt_hidden" in self.needs,
            prompt_top_ids="prompt_top_ids" in self.needs,
            hidden_layer=self._hidden_layer,
        )
        self.last_logits = self.law.apply(out.last_logits)
        self.last_hidden = out.last_hidden
        # Room for every output token and one pending id; views of it are what retrievers read.
        self.ids = np.empty(len(prompt_ids) + self.stop.max_new_tokens + 1, dtype=np.int64)
        self.ids[: len(prompt_ids)] = prompt_ids
        self.num_committed = len(prompt_ids)
        self._set_pending(self.method.verifier.choose(self.last_logits, self.random))
        self.output_ids, self.finish_reason = self.stop.clip([self.pending_id], 0)
        self.probe.end_phase("prefill")
        if self.method.retriever:
            self.method.retriever.begin(self._context(out))
            self.probe.end_phase("observe")  # Learning from the prompt is the method's own cost.

    def step(self) -> None:
        tree = self._draft()
        out = self.target.forward_tree(tree)
        self.probe.end_phase("forward")
        logits = self.law.apply(out.logits)
        verdict = self._verify(tree, logits, out)
        self.probe.end_phase("verify")
        path, num_output = self._clip(tree, verdict)
        self.target.commit(path)
        self.probe.end_phase("commit")
        self.last_logits, self.last_hidden = logits[path[-1]], out.hidden[path[-1]]
        # What follows an EOS inside the path, or the last token of the budget, is no output.
        pending_id = verdict.next_id if num_output == len(path) else None
        self._advance(tree, path, verdict.next_id)
        self._observe(tree, path, pending_id, replace(out, logits=logits))
        self.probe.end_phase("observe")
        # Only now: no phase of the method is charged for what only the results need.
        self.steps.append(
            StepRecord.of(
                tree, verdict, path=path, num_output=num_output, candidates=self.candidates
            )
        )
        self.probe.end_step(self.steps[-1])

    def _draft(self) -> DraftTree:
        """Propose, screen and build."""
        retriever, method = self.method.retriever, self.method
        candidates: list[Candidate] = []
        if retriever is not None:
            candidates = retriever.propose(self._context(), method.max_candidates)
            self.probe.end_phase("propose")
            candidates = self._screen(candidates)
        tree = (
            method.tree_builder.build(self.pending_id, candidates, method.node_budget)
            if candidates
            else DraftTree.root_only(self.pending_id)
        )
        self.candidates = candidates
        self.probe.end_phase("build")
        return tree

    def _screen(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """What of the candidates may enter a tree.

        Tokens that could not be output are cut: those from the first id outside the vocabulary,
        behind the first EOS, and beyond the budget (whose last token is never forwarded).
        """
        max_len = self.stop.max_new_tokens - len(self.output_ids)
        candidates = [
            screened
            for candidate in candidates[: self.method.max_candidates]
            if (screened := usable_part(candidate, self.target.vocab_size, self.stop.eos_ids))
        ]
        is_root = self._may_start([c.token_ids[0] for c in candidates])
        return [c.cut(max_len) for c, ok in zip(candidates, is_root, strict=True) if ok]

    def _may_start(self, first_ids: list[int]) -> list[bool]:
        """Whether each first token is pending or an alternative that the verifier admits."""
        others = sorted({token_id for token_id in first_ids if token_id != self.pending_id})
        admitted = {self.pending_id}
        if others:
            ids = torch.tensor(others, device=self.last_logits.device)
            mask = self.method.verifier.admit(self.last_logits, ids, self.stop.eos_ids).tolist()
            admitted |= {t for t, ok in zip(others, mask, strict=True) if ok}
        return [token_id in admitted for token_id in first_ids]

    def _verify(self, tree: DraftTree, logits: Float[Tensor, "n v"], out: TreeOutput) -> Verdict:
        verifier = self.method.verifier
        # A verifier that reads no hidden states need not have the argument.
        given = {"hidden": out.hidden} if "hidden" in verifier.needs else {}
        return verifier.verify(
            tree, self.last_logits, logits, self.random, self.stop.eos_ids, **given
        )

    def _clip(self, tree: DraftTree, verdict: Verdict) -> tuple[tuple[int, ...], int]:
        """Appends the step's output; returns the path as far as it is output, and its new tokens.

        Raises:
            ValueError: If the verifier returned something that is no path from depth 0.
        """
        path = verdict.path
        if not path or path[-1] >= tree.num_nodes or list(path) != tree.path_to(path[-1]):
            name = self.method.verifier.name
            raise ValueError(f"verifier {name!r} kept {path}, no path of the tree")
        path_ids = tree.token_ids[list(path)].tolist()
        num_before = len(self.output_ids) - 1  # The first node's token is counted already.
        kept, self.finish_reason = self.stop.clip([*path_ids, verdict.next_id], num_before)
        self.output_ids[num_before:] = kept
        return path[: len(kept)], len(kept) - 1

    def _advance(self, tree: DraftTree, path: tuple[int, ...], next_id: int) -> None:
        """Moves the ids to the end of the path and the token behind it."""
        self.ids[self.num_committed : self.num_committed + len(path)] = tree.token_ids[list(path)]
        self.num_committed += len(path)
        self._set_pending(next_id)

    def _observe(
        self, tree: DraftTree, path: tuple[int, ...], pending_id: int | None, out: TreeOutput
    ) -> None:
        """Tells the retriever how the step has ended."""
        retriever, rows = self.method.retriever, list(path)
        if retriever is None:
            return
        top_ids = None
        if "node_top_ids" in self.needs:
            top_ids = top_tokens(out.logits, retriever.num_top_ids).cpu().numpy()
        retriever.observe(
            StepOutcome(
                token_ids=tree.token_ids[rows],
                pending_id=pending_id,
                tree=tree,
                path=path,
                hidden=out.hidden[rows] if "hidden" in self.needs else None,
                layer_hidden=None if out.layer_hidden is None else out.layer_hidden[rows],
                node_top_ids=top_ids,
            )
        )

    def _set_pending(self, token_id: int) -> None:
        self.pending_id = token_id
        self.ids[self.num_committed] = token_id

    def _context(self, prefill: StepOutput | None = None) -> Context:
        ids = self.ids[: self.num_committed + 1]
        ids.flags.writeable = False
        return Context(
            ids_with_pending=ids,
            num_prompt_tokens=self.num_prompt_tokens,
            vocab_size=self.target.vocab_size,
            eos_ids=self.stop.eos_ids,
            last_logits=self.last_logits if "last_logits" in self.needs else None,
            last_hidden=self.last_hidden if "hidden" in self.needs else None,
            prompt_hidden=prefill.prompt_hidden if prefill else None,
            prompt_top_ids=prefill.prompt_top_ids if prefill else None,
            prompt_layer_hidden=prefill.prompt_layer_hidden if prefill else None,
            reference_ids=self.reference_ids if prefill and "reference" in self.needs else None,
            random=self.random if self._samples_drafts else None,
        )

    @property
    def _hidden_layer(self) -> float | None:
        retriever = self.method.retriever
        return retriever.hidden_layer if retriever and "layer_hidden" in self.needs else None

    @property
    def _samples_drafts(self) -> bool:
        retriever = self.method.retriever
        return retriever is not None and retriever.proposal != "point_mass"
