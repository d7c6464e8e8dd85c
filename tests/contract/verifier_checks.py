"""Checks that every verifier passes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from contract.components import make, only_if
from methods.sampling import SamplingLaw
from methods.targets.toy import ToyTarget
from primitives.interfaces import Verifier
from primitives.random_source import RandomSource, TorchRandom
from primitives.types import ROOT_REASON, DraftTree, Verdict
from support.enumeration import assert_same_law, exact_law
from support.scenes import ScoredTree, judge, scored_trees
from support.toy import RefusesToDraw, continuation_law

SEEDS = range(6)
PENDING = 1
TARGET_LAWS = {
    "plain": SamplingLaw(temperature=1.0),
    "top_k": SamplingLaw(temperature=2.0, top_k=2),
}
"""Laws of the target; `top_k` gives some drafted tokens the probability 0."""
DRAFT_LAWS = {
    "stranger": (5, SamplingLaw(temperature=1.0)),
    "same": (0, SamplingLaw(temperature=1.0)),
    "narrow": (5, SamplingLaw(temperature=1.0, top_k=3)),
}
"""Seed and law of the draft model: another model, the target itself, one that excludes tokens."""

Draw = Callable[[RandomSource], DraftTree]


def is_lossless(cls: type[Verifier]) -> bool:
    return cls.is_lossless_greedy or cls.is_lossless_sampling


def check_node_0_alone_gives_one_token(cls: type[Verifier]) -> None:
    for scored in _bank():
        tree = DraftTree.root_only(int(scored.tree.token_ids[0]))
        verdict = _verify(cls, tree, scored.last_logits, scored.logits[:1])
        assert verdict.path == (0,)
        assert verdict.reasons == (ROOT_REASON,)
        assert 0 <= verdict.next_id < scored.logits.shape[1]


def check_perfect_draft_is_kept_with_a_bonus(cls: type[Verifier]) -> None:
    for length in (1, 2, 5):
        token_ids = [3 + i for i in range(length + 2)]
        logits = torch.stack([_certain(token_id) for token_id in token_ids[1:]])
        tree = DraftTree.from_nodes(token_ids[:-1], range(-1, length))
        verdict = _verify(cls, tree, _certain(token_ids[0]), logits)
        assert verdict.path == tuple(range(length + 1))
        assert verdict.next_id == token_ids[-1]


def check_hopeless_draft_is_dropped(cls: type[Verifier]) -> None:
    """All drafted tokens are the least probable of 64: no acceptance rule keeps them."""
    logits = torch.stack([_certain(5)] * 4)
    logits[:, 9:12] = -1e5
    for parents in ([-1, 0, 1, 2], [-1, 0, 0, 0]):
        tree = DraftTree.from_nodes([PENDING, 9, 10, 11], parents)
        verdict = _verify(cls, tree, _certain(PENDING), logits)
        assert verdict.path == (0,)
        assert verdict.next_id == 5


def check_path_is_a_chain_of_parents(cls: type[Verifier]) -> None:
    for scored in _bank():
        for seed in range(8 if cls.samples else 1):
            random = TorchRandom.from_seed(seed)
            verdict = judge(make(cls), scored.tree, scored.last_logits, scored.logits, random)
            assert list(verdict.path) == scored.tree.path_to(verdict.path[-1])
            assert len(verdict.reasons) == len(verdict.path)
            assert all(verdict.reasons)
            assert (verdict.reasons[0] == ROOT_REASON) == (verdict.path[0] == 0)
            assert 0 <= verdict.next_id < scored.logits.shape[1]


def check_tree_and_logits_are_left_alone(cls: type[Verifier]) -> None:
    for scored in _bank():
        tree = _with_draft_probs(scored.tree, scored.logits.shape[1])
        tensors = [tree.draft_probs, scored.last_logits, scored.logits]
        before = [tensor.clone() for tensor in tensors]
        _verify(cls, tree, scored.last_logits, scored.logits)
        assert all(torch.equal(old, new) for old, new in zip(before, tensors, strict=True))


def check_draws_only_if_it_says_so(cls: type[Verifier]) -> None:
    """Without the tag `samples`, a verifier takes the argmax and asks for no randomness."""
    for scored in _bank():
        random = TorchRandom.from_seed(0) if cls.samples else RefusesToDraw()
        judge(make(cls), scored.tree, scored.last_logits, scored.logits, random)
        chosen = make(cls).choose(scored.last_logits, random)
        assert cls.samples or chosen == int(scored.last_logits.argmax())


@only_if(lambda cls: not cls.samples)
def check_next_token_is_the_argmax_behind_the_path(cls: type[Verifier]) -> None:
    """However the path was kept, what follows it is greedy."""
    for scored in _bank_with_ties():
        verdict = _verify(cls, scored.tree, scored.last_logits, scored.logits)
        assert verdict.next_id == int(scored.logits[verdict.path[-1]].argmax())


def check_regrets_are_what_the_argmax_would_have_gained(cls: type[Verifier]) -> None:
    """One per kept node, or none at all if all are 0; exact matches regret nothing.

    A verifier that draws reports none: its exact matches are matches with what it drew.
    """
    for scored in _bank_with_ties():
        verdict = _verify(cls, scored.tree, scored.last_logits, scored.logits)
        assert len(verdict.regrets) in (0, len(verdict.path))
        if cls.samples:
            assert not any(verdict.regrets)
            continue
        regrets = verdict.regrets or (0.0,) * len(verdict.path)
        for node, reason, regret in zip(verdict.path, verdict.reasons, regrets, strict=True):
            parent = scored.tree.parents[node]
            law = scored.last_logits if parent < 0 else scored.logits[parent]
            log_probs = torch.log_softmax(law, dim=-1)
            expected = float(log_probs.max() - log_probs[scored.tree.token_ids[node]])
            assert abs(regret - expected) <= 1e-6
            assert regret >= 0
            assert regret == 0 or reason not in (ROOT_REASON, "em")


def check_regret_bounds_cover_the_path(cls: type[Verifier]) -> None:
    for scored in _bank_with_ties():
        verdict = _verify(cls, scored.tree, scored.last_logits, scored.logits)
        assert len(verdict.regret_bounds) in (0, len(verdict.path))
        assert all(0 <= bound < math.inf for bound in verdict.regret_bounds)
        assert not is_lossless(cls) or not any(verdict.regret_bounds)


@only_if(lambda cls: not cls.samples)
def check_num_exact_is_what_exact_match_would_keep(cls: type[Verifier]) -> None:
    for scored in _bank():
        verdict = _verify(cls, scored.tree, scored.last_logits, scored.logits)
        exact, _ = _argmax_walk(scored.tree, scored.logits)
        assert (verdict.num_exact or len(verdict.path)) == len(exact)


@only_if(lambda cls: not cls.samples)
def check_keeps_no_less_than_exact_match(cls: type[Verifier]) -> None:
    """A rule may add to exact match; where it takes something away, drafts are wasted."""
    for scored in _bank_with_ties():
        verdict = _verify(cls, scored.tree, scored.last_logits, scored.logits)
        assert len(verdict.path) >= len(_argmax_walk(scored.tree, scored.logits)[0])


@only_if(is_lossless)
def check_exact_rules_admit_no_alternative_to_pending(cls: type[Verifier]) -> None:
    logits = torch.zeros(8, dtype=torch.float64)
    for token_ids in ([], [3], [0, 1, 2, 3]):
        mask = make(cls).admit(logits, torch.tensor(token_ids, dtype=torch.int64))
        assert mask.dtype == torch.bool
        assert mask.tolist() == [False] * len(token_ids)


@only_if(lambda cls: cls.is_lossless_greedy)
def check_equals_a_walk_along_the_argmax(cls: type[Verifier]) -> None:
    """Ties included (the first index wins), with and without draft distributions."""
    for scored in _bank_with_ties():
        for tree in (scored.tree, _with_draft_probs(scored.tree, scored.logits.shape[1])):
            verdict = _verify(cls, tree, scored.last_logits, scored.logits)
            assert (verdict.path, verdict.next_id) == _argmax_walk(tree, scored.logits)


@only_if(is_lossless)
def check_cold_limit_is_greedy(cls: type[Verifier]) -> None:
    cold = SamplingLaw(temperature=1e-9)
    for scored in _bank():
        logits = cold.apply(scored.logits)
        for tree in (scored.tree, _with_draft_probs(scored.tree, logits.shape[1])):
            verdict = _verify(cls, tree, cold.apply(scored.last_logits), logits)
            assert (verdict.path, verdict.next_id) == _argmax_walk(tree, scored.logits)


@only_if(lambda cls: cls.is_lossless_sampling)
def check_choice_follows_the_law(cls: type[Verifier]) -> None:
    for law in TARGET_LAWS:
        logits = _target_logits(law, 4, (PENDING,))
        actual = exact_law(functools.partial(make(cls).choose, logits))
        probs = torch.softmax(logits, dim=-1).tolist()
        assert_same_law(actual, {token_id: prob for token_id, prob in enumerate(probs) if prob})


@only_if(lambda cls: cls.is_lossless_sampling)
def check_point_mass_drafts_keep_the_law(cls: type[Verifier]) -> None:
    for token_ids, parents in (
        ([PENDING], [-1]),
        ([PENDING, 0], [-1, 0]),
        ([PENDING, 2, 1], [-1, 0, 1]),
        ([PENDING, 0, 1, 2], [-1, 0, 0, 0]),
        ([PENDING, 0, 2, 0, 1, 1], [-1, 0, 0, 1, 1, 2]),
        ([PENDING, 3, 1, 1, 2, 3, 0], [-1, 0, 0, 1, 2, 2, 1]),
    ):
        tree = DraftTree.from_nodes(token_ids, parents)
        _assert_lossless(cls, lambda random, tree=tree: tree, depth=int(tree.depths.max()))


@only_if(lambda cls: cls.is_lossless_sampling and "iid" in cls.valid_proposals)
def check_independent_drafts_keep_the_law(cls: type[Verifier]) -> None:
    """Chains, and independent draws whose equal prefixes are merged."""
    for draft in DRAFT_LAWS:
        for depths in ((2,), (1, 1), (1, 1, 1), (2, 1)):
            draw = functools.partial(_draw_paths, draft, depths)
            _assert_lossless(cls, draw, depth=max(depths), vocab_size=3)


@only_if(lambda cls: cls.is_lossless_sampling and "without_replacement" in cls.valid_proposals)
def check_drafts_without_replacement_keep_the_law(cls: type[Verifier]) -> None:
    for draft in DRAFT_LAWS:
        for num_children in (1, 2, 3):
            draw = functools.partial(_draw_siblings, draft, num_children)
            _assert_lossless(cls, draw, depth=1, vocab_size=4)


@only_if(lambda cls: cls.is_lossless_sampling)
def check_no_draft_probs_means_point_mass(cls: type[Verifier]) -> None:
    """The same law of verdicts as with distributions that give each node's token all the mass."""
    for scored in scored_trees(0, vocab_size=3)[:7]:
        tokens = torch.as_tensor(scored.tree.token_ids.copy())
        certain = torch.nn.functional.one_hot(tokens, 3).double()
        without, with_probs = (
            exact_law(functools.partial(_decide, cls, replace(scored, tree=tree)))
            for tree in (scored.tree, _replace_probs(scored.tree, certain))
        )
        assert_same_law(without, with_probs)


def _assert_lossless(cls: type[Verifier], draw: Draw, *, depth: int, vocab_size: int = 4) -> None:
    """The law of the next `depth` + 1 tokens, drafts and verdict enumerated, is the target's."""
    for name, law in TARGET_LAWS.items():

        def run(random: RandomSource, name: str = name) -> tuple[int, ...]:
            tree = draw(random)
            paths = [_tokens(tree, tree.path_to(node)) for node in range(tree.num_nodes)]
            rows = torch.stack([_target_logits(name, vocab_size, path) for path in paths])
            last_logits = _target_logits(name, vocab_size, ())
            verdict = judge(make(cls), tree, last_logits, rows, random)
            output = (*_tokens(tree, verdict.path), verdict.next_id)
            while len(output) < depth + 2:
                probs = torch.softmax(_target_logits(name, vocab_size, output), dim=-1)
                output = (*output, random.categorical(probs))
            return output[1:]

        expected = continuation_law(_target(vocab_size), [2, PENDING], depth + 1, law)
        assert_same_law(exact_law(run), expected)


@functools.cache
def _target(vocab_size: int, seed: int = 0) -> ToyTarget:
    return ToyTarget(vocab_size=vocab_size, seed=seed, eos_id=None)


@functools.cache
def _target_logits(law: str, vocab_size: int, path: tuple[int, ...]) -> Tensor:
    return TARGET_LAWS[law].apply(_target(vocab_size).logits([2, *path]))


@functools.cache
def _draft_row(law: str, vocab_size: int, path: tuple[int, ...]) -> Tensor:
    model, sampling_law = DRAFT_LAWS[law]
    logits = _target(vocab_size, seed=model).logits([2, *path])
    return torch.softmax(sampling_law.apply(logits), dim=-1)


def _draw_paths(draft: str, depths: Sequence[int], random: RandomSource) -> DraftTree:
    """Independent paths of the given depths; a node that is there already is not added again."""
    paths: list[tuple[int, ...]] = [(PENDING,)]
    rows = [torch.zeros(3, dtype=torch.float64)]
    for depth in depths:
        path: tuple[int, ...] = (PENDING,)
        for _ in range(depth):
            row = _draft_row(draft, 3, path)
            path = (*path, random.categorical(row))
            if path not in paths:
                paths.append(path)
                rows.append(row)
    parents = [paths.index(path[:-1]) if len(path) > 1 else -1 for path in paths]
    return DraftTree.from_nodes([p[-1] for p in paths], parents, draft_probs=torch.stack(rows))


def _draw_siblings(draft: str, num_children: int, random: RandomSource) -> DraftTree:
    """Children of node 0, drawn without replacement; all carry the law of the first draw."""
    row = _draft_row(draft, 4, (PENDING,))
    drawn: list[int] = []
    left = row.clone()
    for _ in range(num_children):
        drawn.append(random.categorical(left))
        left[drawn[-1]] = 0.0
    return DraftTree.from_nodes(
        [PENDING, *drawn],
        [-1, *[0] * num_children],
        draft_probs=row.repeat(num_children + 1, 1),
    )


def _verify(cls: type[Verifier], tree: DraftTree, last_logits: Tensor, logits: Tensor) -> Verdict:
    return judge(make(cls), tree, last_logits, logits, TorchRandom.from_seed(0))


def _argmax_walk(tree: DraftTree, logits: Tensor) -> tuple[tuple[int, ...], int]:
    """The path that repeats the argmax, by brute force over all nodes, and the token behind it."""
    best = (0,)
    for node in range(tree.num_nodes):
        path = tuple(tree.path_to(node))
        hits = [
            int(logits[parent].argmax()) == tree.token_ids[child]
            for parent, child in itertools.pairwise(path)
        ]
        if path[0] == 0 and all(hits) and len(path) > len(best):
            best = path
    return best, int(logits[best[-1]].argmax())


def _bank() -> Iterator[ScoredTree]:
    return (scored for seed in SEEDS for scored in scored_trees(seed))


def _bank_with_ties() -> Iterator[ScoredTree]:
    ties = (scored for seed in SEEDS for scored in scored_trees(seed, has_ties=True))
    return itertools.chain(_bank(), ties)


def _certain(token_id: int, vocab_size: int = 64) -> Tensor:
    """Logits that leave no doubt."""
    logits = torch.zeros(vocab_size, dtype=torch.float64)
    logits[token_id] = 1e4
    return logits


def _with_draft_probs(tree: DraftTree, vocab_size: int) -> DraftTree:
    uniform = torch.full((tree.num_nodes, vocab_size), 1.0 / vocab_size, dtype=torch.float64)
    return _replace_probs(tree, uniform)


def _replace_probs(tree: DraftTree, draft_probs: Tensor) -> DraftTree:
    return DraftTree.from_nodes(
        tree.token_ids.tolist(), tree.parents.tolist(), draft_probs=draft_probs
    )


def _tokens(tree: DraftTree, path: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(tree.token_ids[node]) for node in path)


def _decide(
    cls: type[Verifier], scored: ScoredTree, random: RandomSource
) -> tuple[tuple[int, ...], int]:
    verdict = judge(make(cls), scored.tree, scored.last_logits, scored.logits, random)
    return verdict.path, verdict.next_id
