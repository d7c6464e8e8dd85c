"""Soft-gated and conditional verification on hand-worked trees and against a plain reading."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from primitives.registry import VERIFIERS
from primitives.types import SIBLING_SOURCE, DraftTree, Verdict
from primitives.verifiers.soft_gated import SoftGated
from support.scenes import ScoredTree, scored_trees
from support.toy import RefusesToDraw

# Token i has rank i in each of them.
UNSURE = (0.4, 0.3, 0.2, 0.1)  # 1.280 nats, 0.92 of the largest entropy, ln 4.
SURE = (0.97, 0.01, 0.01, 0.01)  # 0.168 nats, 0.12 of it.
CUT = (0.6, 0.4, 0.0, 0.0)  # 0.673 nats, 0.49 of it; two tokens are excluded.
FLAT = (0.4, 0.2, 0.2, 0.2)  # 1.332 nats.


def rows(*laws: Sequence[float]) -> Tensor:
    return torch.tensor(laws, dtype=torch.float64).log()


def verify(
    tree: DraftTree,
    laws: Sequence[Sequence[float]] | None = None,
    *,
    name: str = "soft_gated",
    last: Sequence[float] = UNSURE,
    eos_ids: frozenset[int] = frozenset(),
    **fields: Any,
) -> Verdict:
    logits = rows(*(laws or [UNSURE] * tree.num_nodes))
    verifier = VERIFIERS.create(name, **fields)
    return verifier.verify(tree, rows(last)[0], logits, RefusesToDraw(), eos_ids)


def chain(*ranks: int) -> DraftTree:
    """Node 0, then a token of each rank."""
    return DraftTree.from_nodes([0, *ranks], range(-1, len(ranks)))


strict_topk = functools.partial(verify, gamma=0.5, use_con=False)


def test_probable_tokens_pass_where_the_target_is_unsure() -> None:
    verdict = strict_topk(chain(1, 2, 0, 3, 0), k=3)
    assert verdict.path == (0, 1, 2, 3)  # Rank 3 is not among the first 3.
    assert verdict.reasons == ("pending", "topk", "topk", "em")
    assert verdict.next_id == 0
    assert verdict.regrets == pytest.approx((0, math.log(4 / 3), math.log(2), 0))


def test_bound_is_the_gap_to_the_kth_token_where_the_gate_is_open() -> None:
    # Exact matches at an open gate count too: another token would have passed there.
    verdict = strict_topk(chain(1, 0, 0), [UNSURE, UNSURE, SURE, SURE], k=2)
    assert verdict.reasons == ("pending", "topk", "em", "em")
    gap = math.log(4 / 3)
    assert verdict.regret_bounds == pytest.approx((0, gap, gap, 0))


def test_only_the_argmax_passes_where_the_target_is_sure() -> None:
    verdict = strict_topk(chain(1, 0), [SURE] * 3)
    assert (verdict.path, verdict.next_id, verdict.regrets) == ((0,), 0, ())
    assert strict_topk(chain(0, 1), [SURE] * 3).path == (0, 1)
    assert verify(chain(1, 0, 0, 0, 0), [SURE] * 6, gamma=0.5, k=1).path == (0,)


def test_excluded_tokens_never_pass() -> None:
    for rank in (2, 3):
        assert verify(chain(rank, 0, 0, 0), [CUT] * 5, gamma=0.3, k=4).path == (0,)
    verdict = verify(chain(1), [CUT] * 2, gamma=0.3, k=4)
    assert verdict.regret_bounds == pytest.approx((0, math.log(6 / 4)))


def draft(picture: str) -> DraftTree:
    """A chain from node 0 on: `=` for a match, `x` for a mismatch of the last rank."""
    return chain(*(0 if mark == "=" else 3 for mark in picture[1:]))


@pytest.mark.parametrize(
    ("picture", "fields", "num_kept"),
    [
        # Centred, 3 wide: the mismatch at 1 sees 0, 1 and 2, a density of 1/3.
        pytest.param("=x=", {"window": 3, "max_density": 0.34}, 3, id="centred"),
        pytest.param("=x=", {"window": 3, "max_density": 0.33}, 1, id="centred-too-dense"),
        pytest.param("=xx=", {"window": 3, "max_density": 0.34}, 1, id="centred-neighbour"),
        # 5 wide: it sees -1 .. 3, and 1/5 is allowed to be equal to 0.2.
        pytest.param("=x==", {"window": 5, "max_density": 0.2}, 4, id="left-zero"),
        pytest.param("=x==", {"window": 5, "max_density": 1 - 0.8}, 4, id="rounded-threshold"),
        pytest.param(
            "=x==", {"window": 5, "max_density": 0.39, "left_edge": "strict"}, 1, id="left-strict"
        ),  # Position -1 counts as a mismatch: 2/5.
        pytest.param(
            "=x==", {"window": 5, "max_density": 0.4, "left_edge": "strict"}, 4, id="left-2-of-5"
        ),
        pytest.param(
            "=x==", {"window": 5, "max_density": 0.24, "left_edge": "renorm"}, 1, id="left-renorm"
        ),  # Position -1 does not count: 1/4.
        pytest.param(
            "=x==", {"window": 5, "max_density": 0.25, "left_edge": "renorm"}, 4, id="left-1-of-4"
        ),
        # The mismatch at the leaf, 2, sees 1, 2 and 3, which is behind it.
        pytest.param("==x", {"window": 3, "max_density": 0.34}, 2, id="right-strict"),
        pytest.param("==x", {"window": 3, "max_density": 0.67}, 3, id="right-2-of-3"),
        pytest.param(
            "==x", {"window": 3, "max_density": 0.34, "right_edge": "zero"}, 3, id="right-zero"
        ),
        pytest.param(
            "==x", {"window": 3, "max_density": 0.49, "right_edge": "renorm"}, 2, id="right-renorm"
        ),  # Position 3 does not count: 1/2.
        pytest.param(
            "==x", {"window": 3, "max_density": 0.5, "right_edge": "renorm"}, 3, id="right-1-of-2"
        ),
        # Causal: 2 sees 0, 1, 2 (1/3); 3 sees 1, 2, 3 (2/3).
        pytest.param(
            "==xx=", {"window": 3, "max_density": 0.34, "window_kind": "causal"}, 3, id="causal"
        ),
        # Forward: 1 sees 1, 2, 3 (1/3); 4 sees itself and two positions behind the leaf.
        pytest.param(
            "=x==x", {"window": 3, "max_density": 0.34, "window_kind": "forward"}, 4, id="forward"
        ),
        # Even windows have no centre but an end: 2 sees 1 and 2 (1/2).
        pytest.param(
            "==x", {"window": 2, "max_density": 0.5, "window_kind": "causal"}, 3, id="even"
        ),
        # The window sees what is not kept: 1 sees 0 .. 2 (2/3).
        pytest.param("=xx==", {"window": 3, "max_density": 0.67}, 5, id="both"),
    ],
)
def test_few_mismatches_around_excuse_one(
    picture: str, fields: dict[str, Any], num_kept: int
) -> None:
    verdict = verify(draft(picture), k=1, **fields)
    assert len(verdict.path) == num_kept
    words = {"=": "em", "x": "con"}
    assert verdict.reasons[1:] == tuple(words[mark] for mark in picture[1:num_kept])
    assert len(verify(draft(picture), k=1, use_con=False, **fields).path) == picture.index("x")


def test_con_may_differ_between_the_paths_through_a_node() -> None:
    #   0: 0
    #     1: 3 (mismatch)
    #       2: 3 (mismatch)      on 0-1-2, node 1 sees = x x, 2/3
    #       3: 0 (match)         on 0-1-3-4, node 1 sees = x =, 1/3
    #         4: 0 (match)
    tree = DraftTree.from_nodes([0, 3, 3, 0, 0], [-1, 0, 1, 1, 3])
    verdict = verify(tree, k=1, window=3, max_density=0.34)
    assert (verdict.path, verdict.reasons) == ((0, 1, 3, 4), ("pending", "con", "em", "em"))
    assert verify(chain(3, 3), k=1, window=3, max_density=0.34).path == (0,)


def test_topk_is_named_where_con_holds_too() -> None:
    assert verify(chain(1, 0, 0)).reasons == ("pending", "topk", "em", "em")


def test_cap_ends_runs_of_relaxed_tokens() -> None:
    capped = functools.partial(strict_topk, max_consecutive_relaxed=1)
    assert capped(chain(1, 1, 0)).path == (0, 1)
    assert capped(chain(1, 0, 1, 0)).path == (0, 1, 2, 3, 4)
    assert strict_topk(chain(1, 1, 1), max_consecutive_relaxed=2).path == (0, 1, 2)
    # An alternative to node 0 is the first of its run.
    tree = DraftTree.from_nodes([0, 1, 1], [-1, -1, 1])
    assert strict_topk(tree).path == (1, 2)
    assert capped(tree).path == (0,)


@pytest.mark.parametrize("name", ["soft_gated", "conditional"])
def test_eos_needs_an_exact_match_in_both_directions(name: str) -> None:
    relaxed = functools.partial(
        verify, name=name, **({"alpha": 1.0} if name == "conditional" else {})
    )
    assert relaxed(chain(1, 0)).path == (0, 1, 2)
    for eos_id in (0, 1):  # Where 1 would end the answer, or would replace its end.
        eos_ids = frozenset({eos_id, 9})
        assert relaxed(chain(1, 0), eos_ids=eos_ids).path == (0,)
        assert relaxed(chain(1, 0), eos_ids=eos_ids, eos_requires_em=False).path == (0, 1, 2)
    assert relaxed(chain(0, 0), eos_ids=frozenset({0})).path == (0, 1, 2)


def admitted(
    law: Sequence[float], eos_ids: frozenset[int] = frozenset(), **fields: Any
) -> list[bool]:
    """Of tokens 1, 2 and 3."""
    token_ids = torch.tensor([1, 2, 3])
    return VERIFIERS.create("soft_gated", **fields).admit(rows(law)[0], token_ids, eos_ids).tolist()


def test_alternatives_to_pending_are_the_probable_tokens_of_an_unsure_target() -> None:
    assert admitted(UNSURE, gamma=0.5) == [True, True, False]
    assert admitted(UNSURE, gamma=0.5, k=2) == [True, False, False]
    assert admitted(SURE, gamma=0.5) == [False, False, False]
    assert admitted((0.25,) * 4, gamma=1.0) == [False, False, False]
    assert admitted(CUT, gamma=0.3, k=4) == [True, False, False]
    assert admitted(UNSURE, frozenset({2})) == [True, False, False]
    assert admitted(UNSURE, frozenset({0})) == [False, False, False]
    assert admitted(UNSURE, frozenset({0}), eos_requires_em=False) == [True, True, False]


def test_nothing_to_admit() -> None:
    none = torch.tensor([], dtype=torch.int64)
    assert VERIFIERS.create("soft_gated").admit(rows(UNSURE)[0], none).tolist() == []


def test_alternative_wins_with_a_longer_path_only() -> None:
    tree = DraftTree.from_nodes([0, 1, 3, 0], [-1, -1, 0, 1])
    verdict = strict_topk(tree)
    assert (verdict.path, verdict.reasons) == ((1, 3), ("topk", "em"))
    assert verdict.regrets == pytest.approx((math.log(4 / 3), 0))
    assert verdict.regret_bounds == pytest.approx((math.log(2), math.log(2)))
    assert strict_topk(DraftTree.from_nodes([0, 1], [-1, -1])).path == (0,)
    assert strict_topk(tree, last=SURE).path == (0,)  # It would not have been admitted.


def test_con_is_off_at_depth_0() -> None:
    tree = DraftTree.from_nodes([0, 3, 0, 0, 0], [-1, -1, 1, 2, 3])
    assert verify(tree, k=3, max_density=1.0).path == (0,)


def test_ties_of_the_length() -> None:
    fork = functools.partial(DraftTree.from_nodes, parents=[-1, 0, 0])
    # The exact match; else the more probable token; else the first leaf.
    assert strict_topk(fork([0, 1, 0])).path == (0, 2)
    assert strict_topk(fork([0, 2, 1])).path == (0, 2)
    assert strict_topk(fork([0, 2, 1]), [FLAT] * 3).path == (0, 1)
    # 1-3 and 2-4 hold one match each; 0.3 * 0.4 beats 0.4 * 0.2.
    tree = DraftTree.from_nodes([0, 0, 1, 2, 0], [-1, 0, 0, 1, 2])
    assert strict_topk(tree).path == (0, 2, 4)


def test_equal_logits_rank_by_id() -> None:
    # FLAT: token 0, then 1, 2, 3; the second of k = 2 is token 1.
    flat = functools.partial(strict_topk, k=2)
    assert flat(chain(1), [FLAT] * 2).path == (0, 1)
    assert flat(chain(2), [FLAT] * 2).path == (0,)


@pytest.mark.parametrize("vocab_size", [1024, 1500])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_bounds_over_a_large_vocabulary(vocab_size: int, k: int) -> None:
    logits = torch.randn(9, vocab_size, generator=torch.Generator().manual_seed(0))
    tree = DraftTree.from_nodes([1, *logits[:-1].argmax(dim=-1).tolist()], range(-1, 8))
    verdict = SoftGated(k=k).verify(tree, logits[0], logits, RefusesToDraw())
    assert verdict.path == tuple(range(9))
    best = logits.topk(k, dim=-1).values
    gaps = (best[:-1, 0].double() - best[:-1, -1].double()).tolist()
    assert verdict.regret_bounds == pytest.approx((0.0, *gaps))


def test_half_precision_logits() -> None:
    tree = chain(1, 2)
    logits = rows(*[UNSURE] * 3).bfloat16()
    verdict = VERIFIERS.create("soft_gated").verify(tree, logits[0], logits, RefusesToDraw())
    assert verdict.path == (0, 1, 2)
    assert verdict.regrets == pytest.approx((0, math.log(4 / 3), math.log(2)), abs=0.02)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"window": 4}, "window must be odd if it is centred, got 4"),
        ({"max_density": 1.5}, r"max_density must be in \[0, 1\], got 1.5"),
        ({"max_consecutive_relaxed": 0}, "max_consecutive_relaxed must be ≥ 1, got 0"),
    ],
)
def test_bad_fields_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SoftGated(**fields)


def bank(seeds: int = 3) -> list[ScoredTree]:
    return [
        scored
        for seed in range(seeds)
        for has_ties in (False, True)
        for scored in scored_trees(seed, vocab_size=16, has_ties=has_ties)
    ]


def judge(scored: ScoredTree, name: str = "soft_gated", **fields: Any) -> Verdict:
    verifier = VERIFIERS.create(name, **fields)
    return verifier.verify(scored.tree, scored.last_logits, scored.logits, RefusesToDraw())


def law_of(scored: ScoredTree, node: int) -> Tensor:
    parent = int(scored.tree.parents[node])
    return scored.last_logits if parent < 0 else scored.logits[parent]


def normalised_entropy(law: Tensor) -> float:
    """H / ln V."""
    return float(torch.distributions.Categorical(logits=law).entropy()) / math.log(len(law))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("soft_gated", {"gamma": 1.0, "max_density": 1.0, "k": 16}),
        ("soft_gated", {"gamma": 0.0, "k": 1, "use_con": False}),
        ("conditional", {"alpha": 0.0, "beta": 1.0}),
    ],
)
def test_strictest_fields_are_greedy(name: str, fields: dict[str, Any]) -> None:
    uniform = ScoredTree(tree=chain(0, 1, 0), last_logits=torch.zeros(4), logits=torch.zeros(4, 4))
    for scored in [*bank(), uniform]:
        verdict, greedy = judge(scored, name, **fields), judge(scored, "greedy")
        assert (verdict.path, verdict.next_id) == (greedy.path, greedy.next_id)
        assert verdict.reasons == greedy.reasons
        assert not any((*verdict.regrets, *verdict.regret_bounds))


def num_kept(**fields: Any) -> list[int]:
    return [len(judge(scored, **fields).path) for scored in bank(1)]


@pytest.mark.parametrize("use_con", [False, True])
def test_a_wider_gate_and_a_larger_k_keep_no_less(use_con: bool) -> None:
    by_gamma = [num_kept(gamma=gamma, use_con=use_con) for gamma in (1.0, 0.8, 0.6, 0.3, 0.0)]
    by_k = [num_kept(k=k, use_con=use_con) for k in (1, 2, 3, 8, 16)]
    for lengths in (by_gamma, by_k):
        for fewer, more in itertools.pairwise(lengths):
            assert all(a <= b for a, b in zip(fewer, more, strict=True))
        assert sum(lengths[0]) < sum(lengths[-1])


def test_relaxed_tokens_obey_the_gate() -> None:
    gamma, k, num_relaxed = 0.6, 3, 0
    for use_con, scored in itertools.product((False, True), bank()):
        verdict = judge(scored, gamma=gamma, k=k, use_con=use_con, max_density=0.4)
        assert len(verdict.regret_bounds) == len(verdict.path)
        regrets = verdict.regrets or (0.0,) * len(verdict.path)
        for node, reason, regret, bound in zip(
            verdict.path, verdict.reasons, regrets, verdict.regret_bounds, strict=True
        ):
            law = law_of(scored, node)
            top_ids = torch.sort(law, descending=True, stable=True).indices[:k].tolist()
            is_open = normalised_entropy(law) > gamma
            if reason in ("topk", "con"):
                num_relaxed += 1
                assert is_open
                assert (int(scored.tree.token_ids[node]) in top_ids) == (reason == "topk")
                assert use_con or reason == "topk"
            if reason == "topk":
                assert regret <= bound
            gap = float(law[top_ids[0]] - law[top_ids[-1]])
            assert bound == pytest.approx(gap if is_open and node != 0 else 0.0)
    assert num_relaxed > 20


def plainly(scored: ScoredTree, rule: SoftGated) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Equation 17 read node by node and path by path."""
    tree = scored.tree
    leaves = set(range(tree.num_nodes)) - set(tree.parents.tolist())
    best: tuple[Any, ...] = ()
    for order, leaf in enumerate(sorted(leaves)):
        path = tree.path_to(leaf)
        is_match = [
            node == 0 or (position > 0 and _argmax(law_of(scored, node)) == tree.token_ids[node])
            for position, node in enumerate(path)
        ]
        reasons: list[str] = []
        for position, node in enumerate(path):
            law, token_id = law_of(scored, node), int(tree.token_ids[node])
            if is_match[position]:
                reasons.append("em" if node else "pending")
                continue
            run = len(list(itertools.takewhile(lambda w: w in ("topk", "con"), reasons[::-1])))
            cap = rule.max_consecutive_relaxed
            top_ids = torch.sort(law, descending=True, stable=True).indices[: rule.k].tolist()
            is_open = normalised_entropy(law) > rule.gamma and (cap is None or run < cap)
            if is_open and token_id in top_ids:
                reasons.append("topk")
            elif is_open and rule.use_con and position and _is_sparse(is_match, position, rule):
                reasons.append("con")
            else:
                break
        kept = path[: len(reasons)]
        log_probs = [
            float(law_of(scored, node).log_softmax(-1)[tree.token_ids[node]]) for node in kept
        ]
        rank = (len(kept), sum(is_match[: len(kept)]), round(sum(log_probs), 9), -order)
        best = max(best, (rank, kept, reasons))
    return tuple(best[1]), tuple(best[2])


def _argmax(law: Tensor) -> int:
    return int(law.argmax())


def _is_sparse(is_match: list[bool], position: int, rule: SoftGated) -> bool:
    start = {"centred": rule.window // 2, "causal": rule.window - 1, "forward": 0}
    first = position - start[rule.window_kind]
    errors: list[bool] = []
    for place in range(first, first + rule.window):
        if 0 <= place < len(is_match):
            errors.append(not is_match[place])
            continue
        edge = rule.left_edge if place < 0 else rule.right_edge
        errors += [] if edge == "renorm" else [edge == "strict"]
    return sum(errors) <= rule.max_density * len(errors) + 1e-9


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"gamma": 0.5, "k": 2, "window": 3, "max_density": 0.4},
        {"gamma": 0.3, "k": 1, "left_edge": "renorm", "right_edge": "zero", "window": 7},
        {"k": 1, "left_edge": "strict", "right_edge": "renorm", "max_density": 0.5},
        {"k": 2, "window_kind": "causal", "window": 4, "max_density": 0.25},
        {"k": 1, "window_kind": "forward", "window": 3, "max_density": 0.34},
        {"k": 4, "max_consecutive_relaxed": 1, "max_density": 0.6},
    ],
)
def test_equals_a_plain_reading_of_the_equation(fields: dict[str, Any]) -> None:
    for scored in bank():
        verdict = judge(scored, **fields)
        assert (verdict.path, verdict.reasons) == plainly(scored, SoftGated(**fields))


conditional = functools.partial(verify, name="conditional")


def test_threshold_falls_with_the_entropy() -> None:
    # UNSURE: 0.5 - 0.1 * 1.280 = 0.372 > 0.3; 0.5 - 0.2 * 1.280 = 0.244, between 0.3 and 0.2.
    assert conditional(chain(1)).path == (0,)
    verdict = conditional(chain(1, 2), alpha=0.2)
    assert (verdict.path, verdict.reasons) == ((0, 1), ("pending", "threshold"))
    assert verdict.regrets == pytest.approx((0, math.log(4 / 3)))
    assert verdict.regret_bounds == ()
    # SURE: 0.1 - 0.1 * 0.168 = 0.083 > 0.01; CUT: 0.1 - 0.1 * 0.673 = 0.033 < 0.4.
    assert conditional(chain(1), [SURE] * 2, beta=0.1).path == (0,)
    assert conditional(chain(1), [CUT] * 2, beta=0.1).path == (0, 1)


def test_the_argmax_passes_any_threshold() -> None:
    assert conditional(chain(0, 0), alpha=0.0, beta=5.0).path == (0, 1, 2)


def test_a_negative_threshold_lets_anything_pass_that_is_possible() -> None:
    assert conditional(chain(3, 3), alpha=1.0).path == (0, 1, 2)
    assert conditional(chain(2), [CUT] * 2, alpha=1.0).path == (0,)


def test_siblings_need_an_exact_match() -> None:
    tree = dataclasses.replace(chain(1, 0), sources=("", SIBLING_SOURCE, SIBLING_SOURCE))
    assert conditional(tree, alpha=1.0).path == (0,)
    assert conditional(tree, alpha=1.0, strict_siblings=False).path == (0, 1, 2)
    exact = dataclasses.replace(chain(0, 1), sources=("", SIBLING_SOURCE, "copied"))
    assert conditional(exact, alpha=1.0).path == (0, 1, 2)


def test_conditional_keeps_no_alternative_to_pending() -> None:
    tree = DraftTree.from_nodes([0, 1, 0], [-1, -1, 1])
    assert conditional(tree, alpha=1.0).path == (0,)
    assert not VERIFIERS.create("conditional").admit(rows(UNSURE)[0], torch.tensor([1, 2])).any()
