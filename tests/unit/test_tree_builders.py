"""Chain and trie as pictures."""

from __future__ import annotations

import pytest
import torch

from primitives.registry import TREE_BUILDERS
from primitives.types import Candidate, DraftTree
from support.scenes import as_lists

P = 1  # Pending.
BEST = Candidate(token_ids=(P, 2, 3, 4), score=3.0, match_len=3, source="near")
SECOND = Candidate(token_ids=(P, 2, 5), score=2.0, match_len=2, source="far")
THIRD = Candidate(token_ids=(P, 6), score=1.0, match_len=1, source="far")
ALTERNATIVE = Candidate(token_ids=(9, 2), score=2.5, match_len=4, source="soft")


def build(name: str, candidates: list[Candidate], budget: int) -> DraftTree:
    return TREE_BUILDERS.create(name).build(P, candidates, budget)


def test_chain_is_the_best_candidate_cut_to_the_budget() -> None:
    assert str(build("chain", [THIRD, BEST, SECOND], 2)) == (
        "0: token 1\n"
        "  1: token 2\n"
        "    2: token 3"
    )  # fmt: skip


def test_chain_passes_over_alternatives_to_pending() -> None:
    tree = build("chain", [ALTERNATIVE, THIRD], 8)
    assert tree.token_ids.tolist() == [P, 6]
    assert (tree.sources, tree.match_lens) == (("", "far"), (0, 1))
    assert build("chain", [ALTERNATIVE], 8).num_draft_nodes == 0


def test_trie_merges_common_prefixes() -> None:
    tree = build("trie", [THIRD, SECOND, BEST], 8)
    assert str(tree) == (
        "0: token 1\n  1: token 2\n    2: token 3\n      3: token 4\n    4: token 5\n  5: token 6"
    )
    assert tree.sources == ("", "near", "near", "near", "far", "far")
    assert tree.match_lens == (0, 3, 3, 3, 2, 1)


def test_trie_spends_its_budget_on_the_best_candidates() -> None:
    assert str(build("trie", [THIRD, SECOND, BEST], 4)) == (
        "0: token 1\n"
        "  1: token 2\n"
        "    2: token 3\n"
        "      3: token 4\n"
        "    4: token 5"
    )  # fmt: skip
    assert build("trie", [BEST, SECOND], 2).token_ids.tolist() == [P, 2, 3]


def test_trie_puts_alternatives_beside_pending() -> None:
    tree = build("trie", [ALTERNATIVE, THIRD], 8)
    assert str(tree) == (
        "0: token 1\n"
        "  3: token 6\n"
        "1: token 9\n"
        "  2: token 2"
    )  # fmt: skip
    assert tree.depths.tolist() == [0, 0, 1, 1]


def test_frequency_keeps_what_most_occurrences_pass_through() -> None:
    """Equal counts are kept by depth: 6 before 2 5 7, 2 3 before 2 3 4."""
    candidates = [
        BEST,
        SECOND,
        Candidate(token_ids=(P, 2, 5, 7), score=0.5, count=3, source="far"),
        Candidate(token_ids=(P, 6), score=0.1, count=3),
    ]
    trie = TREE_BUILDERS.create("trie", select="frequency")
    paths = ["2", "2 5", "6", "2 5 7", "2 3", "2 3 4"]  # Counts 5, 4, 3, 3, 1, 1.
    for budget in range(8):
        assert _draft_paths(trie.build(P, candidates, budget)) == set(paths[:budget])
    tree = trie.build(P, candidates, 3)
    assert (tree.token_ids.tolist(), tree.parents.tolist()) == ([P, 2, 5, 6], [-1, 0, 1, 0])
    assert tree.sources == ("", "near", "far", "")
    assert tree.match_lens == (0, 3, 2, 0)


def test_frequency_counts_alternatives_to_pending_against_the_budget() -> None:
    tree = TREE_BUILDERS.create("trie", select="frequency").build(P, [ALTERNATIVE, THIRD], 2)
    assert tree.token_ids.tolist() == [P, 9, 2]
    assert tree.depths.tolist() == [0, 0, 1]


@pytest.mark.parametrize("select", ["rank", "frequency", "rest"])
def test_samples_are_taken_in_the_order_of_drawing(select: str) -> None:
    """4 occurs twice and 2 once: to prefer it would prefer what was drawn."""
    candidates = [_sampled(2.0, P, 2, 3), _sampled(1.0, P, 4, 3), _sampled(0.0, P, 4, 5)]
    tree = TREE_BUILDERS.create("trie", select=select).build(P, candidates, 2)
    assert tree.token_ids.tolist() == [P, 2, 3]
    assert [row[0] for row in as_lists(tree.draft_probs)] == [0, 11, 22]


def test_rest_drops_the_prefixes_of_most_distinct_tokens() -> None:
    """Budget 6: 2, 2 3, 2 3 2, 2 3 2 4, 5, 5 6 count 9, 8, 7, 6, 2, 2; the next, 5 6 7, is cut.

    Their distinct tokens are 1, 2, 2, 3, 1, 2, together 11. Dropped are 2 3 2 4 (8 left), of those
    with two the deepest, 2 3 2 (6 left). That fits.
    """
    candidates = [
        Candidate(token_ids=(P, 2), score=9.0, count=1),
        Candidate(token_ids=(P, 2, 3), score=8.0, count=1),
        Candidate(token_ids=(P, 2, 3, 2), score=7.0, count=1),
        Candidate(token_ids=(P, 2, 3, 2, 4), score=6.0, count=6),
        Candidate(token_ids=(P, 5, 6, 7), score=1.0, count=2),
    ]
    tree = TREE_BUILDERS.create("trie", select="rest").build(P, candidates, 6)
    assert _draft_paths(tree) == {"2", "2 3", "5", "5 6"}
    chosen = TREE_BUILDERS.create("trie", select="frequency").build(P, candidates, 6)
    assert _draft_paths(chosen) == {"2", "2 3", "2 3 2", "2 3 2 4", "5", "5 6"}


def test_rest_drops_the_last_of_equally_deep_prefixes() -> None:
    """Budget 3: 2 3, 2 4 and 2 have weights 2, 2 and 1; one of the first two has to go."""
    candidates = [
        Candidate(token_ids=(P, 2, 3), score=2.0),
        Candidate(token_ids=(P, 2, 4), score=1.0),
    ]
    tree = TREE_BUILDERS.create("trie", select="rest").build(P, candidates, 3)
    assert _draft_paths(tree) == {"2", "2 3"}


def test_unknown_selection_is_refused() -> None:
    with pytest.raises(ValueError, match="select of tree_builder 'trie' must be"):
        TREE_BUILDERS.create("trie", select="best")


def _draft_paths(tree: DraftTree) -> set[str]:
    """Tokens behind pending of each draft node."""
    return {
        " ".join(map(str, tree.token_ids[tree.path_to(node)][1:]))
        for node in range(1, tree.num_nodes)
    }


@pytest.mark.parametrize("name", ["chain", "trie"])
def test_no_budget_means_no_draft(name: str) -> None:
    assert build(name, [BEST, SECOND], 0).num_draft_nodes == 0


def _sampled(score: float, *token_ids: int) -> Candidate:
    """Row i of the distributions holds 10 * depth + the parent's token, to be told apart."""
    rows = [[10.0 * depth + ([0, *token_ids][depth])] * 2 for depth in range(len(token_ids))]
    return Candidate(token_ids=token_ids, score=score, draft_probs=torch.tensor(rows))


def test_chain_keeps_distributions() -> None:
    tree = build("chain", [_sampled(1.0, P, 2, 3)], 1)
    assert tree.draft_probs[1].tolist() == [11.0, 11.0]


def test_trie_keeps_each_node_beside_its_distribution() -> None:
    tree = build(
        "trie", [_sampled(2.0, P, 2, 3), _sampled(1.0, P, 4, 3), _sampled(0.0, P, 2, 5)], 8
    )
    assert tree.token_ids.tolist() == [P, 2, 3, 4, 3, 5]
    assert tree.parents.tolist() == [-1, 0, 1, 0, 3, 1]
    assert [row[0] for row in as_lists(tree.draft_probs)] == [0, 11, 22, 11, 24, 22]


def test_trie_refuses_a_mix_of_sampled_and_deterministic_drafts() -> None:
    with pytest.raises(ValueError, match="with and without draft_probs cannot share a tree"):
        build("trie", [_sampled(1.0, P, 2), THIRD], 8)
