"""Recorded generations for retrievers, candidate sets for builders, scored trees for verifiers.

All of it is a function of a seed, and none of it depends on the component under test, so that two
components (or one before and after a change) can be asked the same questions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from methods.targets.toy import LOGIT_SCALE, ToyTarget
from primitives.interfaces import Retriever, Verifier
from primitives.random_source import RandomSource, TorchRandom
from primitives.structures.top_tokens import top_tokens
from primitives.types import (
    PROMPT_TOP_K,
    SIBLING_SOURCE,
    Candidate,
    Context,
    DraftTree,
    StepOutcome,
    Verdict,
)

PROMPT_LENS = (1, 2, 4, 9, 16, 30)
VOCAB_SIZE = 6


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One generation as a retriever is told about it.

    Attributes:
        contexts: What it may read before each step, and after the last one.
        outcomes: What it learns from each step.
    """

    contexts: tuple[Context, ...]
    outcomes: tuple[StepOutcome, ...]


@functools.cache
def record_scene(
    seed: int,
    needs: frozenset[str] = frozenset(),
    *,
    num_steps: int = 12,
    one_by_one: bool = False,
    has_rejected: bool = True,
) -> Scene:
    """A text of the toy target, cut into steps.

    Args:
        seed: Fixes the text, and the steps unless `one_by_one`.
        needs: What is handed over beside token ids; the rest is None, as in the decode loop.
        num_steps: Steps if several tokens may be committed by one.
        one_by_one: Commit the same text one token per step.
        has_rejected: Whether the trees hold nodes that were not kept.
    """
    rng = np.random.default_rng(seed)
    target = ToyTarget(vocab_size=VOCAB_SIZE, seed=seed, eos_id=None)
    path_lens = rng.integers(1, 5, num_steps).tolist()
    num_prompt = PROMPT_LENS[seed % len(PROMPT_LENS)]
    ids = rng.integers(0, VOCAB_SIZE, num_prompt).tolist()
    for _ in range(sum(path_lens) + 1):
        probs = torch.softmax(target.logits(ids), dim=-1).numpy()
        ids.append(int(rng.choice(VOCAB_SIZE, p=probs / probs.sum())))
    if one_by_one:
        path_lens = [1] * sum(path_lens)
    ends = [num_prompt, *(num_prompt + np.cumsum(path_lens)).tolist()]
    return Scene(
        contexts=tuple(_context(target, ids, end, num_prompt, needs) for end in ends),
        outcomes=tuple(
            _outcome(target, ids, start, end, needs, rng if has_rejected else None)
            for start, end in itertools.pairwise(ends)
        ),
    )


def play(retriever: Retriever, scene: Scene, limit: int = 4) -> list[tuple]:
    """What the retriever proposes before each step of a scene, and after the last one."""
    retriever.begin(scene.contexts[0])
    answers = [describe(ask(retriever, scene.contexts[0], limit))]
    for outcome, context in zip(scene.outcomes, scene.contexts[1:], strict=True):
        retriever.observe(outcome)
        answers.append(describe(ask(retriever, context, limit)))
    return answers


def ask(retriever: Retriever, context: Context, limit: int) -> list[Candidate]:
    """What the retriever proposes; one that samples draws the same numbers each time."""
    if retriever.proposal != "point_mass":
        random = TorchRandom.from_seed(len(context.ids_with_pending))
        context = replace(context, random=random)
    return retriever.propose(context, limit)


def describe(candidates: Sequence[Candidate]) -> tuple:
    """Candidates as something that can be compared."""
    return tuple(
        (
            c.token_ids,
            c.score,
            c.match_len,
            c.recency,
            c.source,
            c.token_probs,
            as_lists(c.draft_probs),
        )
        for c in candidates
    )


def as_lists(values: Tensor | None) -> list | None:
    return None if values is None else values.tolist()


def _context(
    target: ToyTarget, ids: list[int], num_committed: int, num_prompt: int, needs: frozenset[str]
) -> Context:
    with_pending = np.array(ids[: num_committed + 1], dtype=np.int64)
    with_pending.flags.writeable = False
    logits = target.logits(ids[:num_committed])
    is_first = num_committed == num_prompt
    return Context(
        ids_with_pending=with_pending,
        num_prompt_tokens=num_prompt,
        vocab_size=VOCAB_SIZE,
        last_logits=logits if "last_logits" in needs else None,
        last_hidden=logits / LOGIT_SCALE if "hidden" in needs else None,
        prompt_hidden=_hidden(target, ids, 1, num_prompt + 1)
        if is_first and "prompt_hidden" in needs
        else None,
        prompt_top_ids=top_tokens(_logits(target, ids, 1, num_prompt + 1), PROMPT_TOP_K).numpy()
        if is_first and "prompt_top_ids" in needs
        else None,
        prompt_layer_hidden=_hidden(target, ids, 1, num_prompt + 1).flip(-1)
        if is_first and "layer_hidden" in needs
        else None,
        # What vanilla would have said: here the text that the scene is about.
        reference_ids=tuple(ids[num_prompt:]) if is_first and "reference" in needs else None,
    )


def _outcome(
    target: ToyTarget,
    ids: list[int],
    start: int,
    end: int,
    needs: frozenset[str],
    rng: np.random.Generator | None,
) -> StepOutcome:
    path_ids = ids[start:end]
    token_ids, parents = list(path_ids), list(range(-1, len(path_ids) - 1))
    if rng is not None:
        for node, kept in enumerate(ids[start + 1 : end + 1]):
            token_ids += [(kept + 1 + int(rng.integers(VOCAB_SIZE - 1))) % VOCAB_SIZE] * 2
            parents += [node, len(parents)]
    tree = DraftTree.from_nodes(token_ids, parents)
    hidden = _hidden(target, ids, start + 1, end + 1)
    return StepOutcome(
        token_ids=np.array(path_ids, dtype=np.int64),
        pending_id=ids[end],
        tree=tree,
        path=tuple(range(len(path_ids))),
        hidden=hidden if "hidden" in needs else None,
        layer_hidden=hidden.flip(-1) if "layer_hidden" in needs else None,
        node_top_ids=_node_top_ids(target, ids[:start], tree) if "node_top_ids" in needs else None,
    )


def _node_top_ids(target: ToyTarget, before: list[int], tree: DraftTree) -> np.ndarray:
    """All tokens behind each node, best first."""
    paths = [tree.token_ids[tree.path_to(node)].tolist() for node in range(tree.num_nodes)]
    logits = torch.stack([target.logits([*before, *path]) for path in paths])
    return top_tokens(logits, VOCAB_SIZE).numpy()


def _hidden(target: ToyTarget, ids: list[int], start: int, end: int) -> Tensor:
    """LM head inputs of the prefixes of lengths start .. end - 1."""
    return _logits(target, ids, start, end) / LOGIT_SCALE


def _logits(target: ToyTarget, ids: list[int], start: int, end: int) -> Tensor:
    return torch.stack([target.logits(ids[:length]) for length in range(start, end)])


@functools.cache
def candidate_sets(seed: int = 0, *, is_sampled: bool = False) -> list[tuple[int, list[Candidate]]]:
    """Pairs (pending id, candidates) as the loop would hand them to a tree builder.

    Few tokens make shared prefixes and duplicates; scores and recencies are drawn from few values,
    so that they tie. Equal candidates have equal provenance. With `is_sampled`, candidates carry
    `draft_probs` that are a function of the prefix.
    """
    rng = np.random.default_rng(seed)
    sets: list[tuple[int, list[Candidate]]] = [(3, []), (3, [Candidate(token_ids=(3,))] * 2)]
    for vocab_size in (2, 3, 4, 20):
        for num_candidates in (1, 3, 8):
            pending_id = int(rng.integers(vocab_size))
            candidates = []
            for _ in range(num_candidates):
                is_alternative = vocab_size > 3 and not is_sampled and rng.random() < 0.2
                first = int(rng.integers(vocab_size)) if is_alternative else pending_id
                tail = rng.integers(0, vocab_size, rng.integers(0, 8)).tolist()
                candidates.append(_candidate((first, *tail), vocab_size, rng, is_sampled))
            sets.append((pending_id, [*candidates, candidates[0]]))
    return sets


def _candidate(
    token_ids: tuple[int, ...], vocab_size: int, rng: np.random.Generator, is_sampled: bool
) -> Candidate:
    score = float(rng.integers(3))
    rows = [draft_row(token_ids[:position], vocab_size) for position in range(len(token_ids))]
    return Candidate(
        token_ids=token_ids,
        score=score,
        recency=int(rng.integers(3)),
        match_len=int(score) + len(token_ids) % 3,
        source=f"source{sum(token_ids) % 2}",
        draft_probs=torch.stack(rows) if is_sampled else None,
    )


@functools.cache
def draft_row(prefix: tuple[int, ...], vocab_size: int) -> Tensor:
    """A draft distribution of what follows `prefix`; different for different prefixes."""
    rng = np.random.default_rng([len(prefix), *prefix, vocab_size])
    return torch.from_numpy(rng.dirichlet(np.ones(vocab_size)))


def token_paths(tree: DraftTree) -> list[tuple[int, ...]]:
    """Per node the tokens from depth 0 down to it."""
    return [tuple(tree.token_ids[tree.path_to(node)].tolist()) for node in range(tree.num_nodes)]


def describe_tree(tree: DraftTree) -> tuple:
    """A tree as something that can be compared."""
    return (
        tree.token_ids.tolist(),
        tree.parents.tolist(),
        tree.sources,
        tree.match_lens,
        as_lists(tree.draft_probs),
    )


@dataclass(frozen=True, kw_only=True)
class ScoredTree:
    """A draft tree with the logits that a verifier judges it by."""

    tree: DraftTree
    last_logits: Tensor
    logits: Tensor


def forget_all() -> None:
    """Makes everything anew at its next use: for who hands it to components that spoil it."""
    for cached in (record_scene, candidate_sets, draft_row, scored_trees):
        cached.cache_clear()


def judge(
    verifier: Verifier, tree: DraftTree, last_logits: Tensor, logits: Tensor, random: RandomSource
) -> Verdict:
    """What the verifier says, with made-up hidden states where it needs some."""
    if "hidden" in verifier.needs:
        return verifier.verify(tree, last_logits, logits, random, hidden=logits.flip(-1))
    return verifier.verify(tree, last_logits, logits, random)


@functools.cache
def scored_trees(seed: int = 0, *, vocab_size: int = 8, has_ties: bool = False) -> list[ScoredTree]:
    """Random trees of up to 12 nodes whose nodes are often the target's most probable tokens.

    Then some of up to 16 nodes that are deeper, have alternatives to node 0, and hold more of the
    tokens that are nearly the most probable one: what relaxed rules decide about.
    """
    rng = np.random.default_rng(seed)
    scored = []
    for num_nodes in (1, 2, 2, 3, 4, 5, 6, 8, 10, 12):
        logits = rng.normal(0.0, 2.0, (num_nodes, vocab_size))
        last_logits = rng.normal(0.0, 2.0, vocab_size)
        if has_ties:
            logits, last_logits = np.round(logits / 2), np.round(last_logits / 2)
        token_ids, parents = [int(np.argmax(last_logits))], [-1]
        while len(token_ids) < num_nodes:
            parent = int(rng.integers(len(token_ids)))
            free = _free_tokens(token_ids, parents, parent, logits[parent])
            if free:
                token_ids.append(free[0] if rng.random() < 0.7 else int(rng.choice(free)))
                parents.append(parent)
        scored.append(_scored_tree(token_ids, parents, last_logits, logits))
    for num_nodes in (10, 12, 14, 16):
        # Rows from nearly certain to nearly uniform.
        sharpness = rng.uniform(0.1, 3.0, (num_nodes + 1, 1))
        rows = rng.normal(0.0, 2.0, (num_nodes + 1, vocab_size)) * sharpness
        if has_ties:
            rows = np.round(rows / 2)
        last_logits, logits = rows[0], rows[1:]
        token_ids, parents = [int(np.argmax(last_logits))], [-1]
        while len(token_ids) < num_nodes:
            is_deep, is_alternative = rng.random() < 0.8, rng.random() < 0.1
            parent = len(token_ids) - 1 if is_deep else int(rng.integers(len(token_ids)))
            parent = -1 if is_alternative else parent
            free = _free_tokens(token_ids, parents, parent, rows[parent + 1])
            if free:
                rank = 0 if rng.random() < 0.6 else int(rng.integers(1, 7))
                token_ids.append(free[min(rank, len(free) - 1)])
                parents.append(parent)
        scored.append(_scored_tree(token_ids, parents, last_logits, logits))
    return scored


def _free_tokens(
    token_ids: list[int], parents: list[int], parent: int, logits: np.ndarray
) -> list[int]:
    """Tokens that no child of `parent` carries yet, most probable first."""
    taken = [t for t, p in zip(token_ids, parents, strict=True) if p == parent]
    return [t for t in np.argsort(-logits, kind="stable").tolist() if t not in taken]


def _scored_tree(
    token_ids: list[int], parents: list[int], last_logits: np.ndarray, logits: np.ndarray
) -> ScoredTree:
    """Every third draft node counts as a sibling that was copied from nowhere."""
    sources = ["", *("copied" if node % 3 else SIBLING_SOURCE for node in range(1, len(parents)))]
    return ScoredTree(
        tree=DraftTree.from_nodes(token_ids, parents, sources=sources),
        last_logits=torch.from_numpy(last_logits),
        logits=torch.from_numpy(logits),
    )
