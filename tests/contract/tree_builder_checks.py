"""Checks that every tree builder passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from contract.components import make, only_if
from primitives.interfaces import TreeBuilder
from primitives.types import Candidate, DraftTree
from support.scenes import candidate_sets, describe_tree, draft_row, token_paths

BUDGETS = (0, 1, 2, 5, 64)
SEEDS = range(3)


def check_no_candidates_give_node_0_alone(cls: type[TreeBuilder]) -> None:
    for budget in BUDGETS:
        for candidates in ([], [Candidate(token_ids=(7,))], [Candidate(token_ids=(7,))] * 3):
            tree = make(cls).build(7, candidates, budget)
            assert tree.num_nodes == 1
            assert tree.token_ids.tolist() == [7]


def check_invariants(cls: type[TreeBuilder]) -> None:
    for pending_id, _, budget, tree in _trees(cls):
        parents = tree.parents.tolist()
        assert tree.token_ids[0] == pending_id
        assert parents[0] == -1
        assert tree.num_draft_nodes <= budget
        assert all(-1 <= parent < node for node, parent in enumerate(parents))
        for node, parent in enumerate(parents):
            assert tree.depths[node] == (0 if parent < 0 else tree.depths[parent] + 1)
        siblings = list(zip(parents, tree.token_ids.tolist(), strict=True))
        assert len(set(siblings)) == len(siblings), "siblings repeat a token"


def check_some_tree_has_draft_nodes(cls: type[TreeBuilder]) -> None:
    """A builder that drops every candidate would pass every other check."""
    assert any(tree.num_draft_nodes for _, _, _, tree in _trees(cls))


def check_mask_is_the_ancestor_relation(cls: type[TreeBuilder]) -> None:
    for _, _, _, tree in _trees(cls):
        mask = np.zeros((tree.num_nodes, tree.num_nodes), dtype=bool)
        for node in range(tree.num_nodes):
            ancestor = node
            while ancestor >= 0:
                mask[node, ancestor] = True
                ancestor = int(tree.parents[ancestor])
        assert np.array_equal(tree.ancestor_mask(), mask)


@only_if(lambda cls: not cls.synthesises)
def check_paths_are_prefixes_of_candidates(cls: type[TreeBuilder]) -> None:
    """Beyond pending, every node also says which candidate it came from."""
    for pending_id, candidates, _, tree in _trees(cls):
        for node, path in enumerate(token_paths(tree)):
            origins = [c for c in candidates if c.token_ids[: len(path)] == path]
            if node == 0:
                assert path == (pending_id,)
                continue
            assert origins, f"{path} is no prefix of a candidate"
            provenance = (tree.sources[node], tree.match_lens[node])
            assert provenance in {(c.source, c.match_len) for c in origins}


@only_if(lambda cls: not cls.synthesises)
def check_draft_probs_follow_their_nodes(cls: type[TreeBuilder]) -> None:
    for seed in SEEDS:
        for pending_id, candidates in candidate_sets(seed, is_sampled=True):
            for budget in BUDGETS:
                tree = make(cls).build(pending_id, candidates, budget)
                if tree.num_draft_nodes == 0 or candidates[0].draft_probs is None:
                    continue
                assert tree.draft_probs is not None
                vocab_size = tree.draft_probs.shape[1]
                for row, path in list(zip(tree.draft_probs, token_paths(tree), strict=True))[1:]:
                    assert torch.equal(row, draft_row(path[:-1], vocab_size))


def check_point_masses_have_no_draft_probs(cls: type[TreeBuilder]) -> None:
    assert all(tree.draft_probs is None for _, _, _, tree in _trees(cls))


def check_order_of_candidates_does_not_matter(cls: type[TreeBuilder]) -> None:
    """Ties of the score are broken by the candidates themselves, not by who came first."""
    rng = np.random.default_rng(0)
    for pending_id, candidates in _candidate_sets():
        tied = [replace(candidate, score=1.0) for candidate in candidates]
        for group in (candidates, tied):
            shuffled = [group[i] for i in rng.permutation(len(group))]
            for budget in BUDGETS:
                expected = make(cls).build(pending_id, group, budget)
                actual = make(cls).build(pending_id, shuffled, budget)
                assert _shape(actual) == _shape(expected)


@only_if(lambda cls: cls.is_monotone)
def check_larger_budgets_only_add_nodes(cls: type[TreeBuilder]) -> None:
    for pending_id, candidates in _candidate_sets():
        smaller: set[tuple[int, ...]] = set()
        for budget in range(12):
            larger = set(token_paths(make(cls).build(pending_id, candidates, budget)))
            assert smaller <= larger
            smaller = larger


def _candidate_sets() -> Iterator[tuple[int, Sequence[Candidate]]]:
    return (pair for seed in SEEDS for pair in candidate_sets(seed))


def _trees(cls: type[TreeBuilder]) -> Iterator[tuple[int, Sequence[Candidate], int, DraftTree]]:
    for pending_id, candidates in _candidate_sets():
        for budget in BUDGETS:
            yield pending_id, candidates, budget, make(cls).build(pending_id, candidates, budget)


def _shape(tree: DraftTree) -> tuple:
    return describe_tree(tree)[:2]
