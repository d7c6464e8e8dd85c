"""Bigrams: the table, the rows that are made of it, and the store on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from methods.datastores.bigrams import build_bigram_store, open_bigram_store
from methods.datastores.folder import DatastoreError, Header
from methods.targets.toy import ToyTarget
from primitives.retrievers.bigram import Bigram
from primitives.structures.bigrams import BigramTable
from primitives.types import Candidate, Context
from support.ngram_stores import toy_bigrams

# Behind 0: 1 (0.5), 2 (0.25); behind 1: 2, 3; behind 2: 0, 1; behind 3: 3, 0.
TABLE = BigramTable(
    np.array([[1, 2], [2, 3], [0, 1], [3, 0]], dtype=np.int32),
    np.array([[0.5, 0.25], [0.75, 0.125], [1.0, 0.0], [0.5, 0.5]], dtype=np.float16),
)


def propose(ids: list[int], limit: int = 10, eos_id: int = -1, **fields: Any) -> list[Candidate]:
    retriever = Bigram(**{"num_tokens": 3, **fields})
    retriever.attach(TABLE)
    context = Context(
        ids_with_pending=np.array(ids),
        num_prompt_tokens=len(ids) - 1,
        vocab_size=8,
        eos_ids=frozenset({eos_id}),
    )
    return retriever.propose(context, limit)


def drafts(*args: Any, **fields: Any) -> list[tuple[int, ...]]:
    return [candidate.token_ids[1:] for candidate in propose(*args, **fields)]


def test_successors_are_extended_by_the_best_one() -> None:
    """Behind 0: 1, then 2 (best behind 1), then 0; and 2, then 0, then 1."""
    rows = propose([7, 0], use_context=False)
    assert [row.token_ids for row in rows] == [(0, 1, 2, 0), (0, 2, 0, 1)]
    assert [row.token_probs for row in rows] == [(1.0, 0.5, 0.75, 1.0), (1.0, 0.25, 1.0, 0.5)]
    assert [row.score for row in rows] == [0.5, 0.25]
    assert drafts([7, 0], limit=1, use_context=False) == [(1, 2, 0)]


def test_the_text_fills_the_first_rows() -> None:
    """Pending 0 occurred before 5 6 5 and before 4 4 0 twice; the table is asked last."""
    ids = [0, 5, 6, 5, 0, 4, 4, 0, 4, 4, 0]
    assert drafts(ids, max_ngram=1) == [(4, 4, 0), (5, 6, 5), (1, 2, 0), (2, 0, 1)]
    first, second, *_ = propose(ids, max_ngram=1)
    assert (first.count, first.recency, first.match_len, first.source) == (2, 8, 1, "context")
    assert (first.score, second.score) == (1 + 2 / 4, 1 + 1 / 4)
    assert drafts(ids, limit=2, max_ngram=1) == [(4, 4, 0), (5, 6, 5)]


def test_longer_matches_come_before_frequent_ones() -> None:
    """7 0 was followed by 5 once, 0 alone by 4 twice."""
    ids = [7, 0, 5, 5, 0, 4, 0, 4, 7, 0]
    assert drafts(ids, num_tokens=1, use_context=True)[:2] == [(5,), (4,)]
    assert drafts(ids, num_tokens=1, max_ngram=1)[:2] == [(4,), (5,)]
    assert drafts(ids, num_tokens=1, min_ngram=2) == [(5,), (1,), (2,)]


def test_rows_end_at_eos_and_do_not_repeat() -> None:
    assert drafts([7, 0], eos_id=2, use_context=False) == [(1, 2), (2,)]
    assert drafts([0, 1, 0], num_tokens=1) == [(1,), (2,)]


def test_a_token_without_a_row_has_no_successors() -> None:
    assert drafts([0, 7], use_context=False) == []


def test_no_table_is_said() -> None:
    context = Context(ids_with_pending=np.array([0]), num_prompt_tokens=0, vocab_size=4)
    with pytest.raises(RuntimeError, match="needs a table of bigrams"):
        Bigram().propose(context, 1)


def test_tables_are_sound() -> None:
    TABLE.check_integrity()
    toy_bigrams().check_integrity()
    with pytest.raises(AssertionError, match="repeats a token"):
        BigramTable(np.zeros((2, 2), dtype=np.int32), TABLE.probs[:2]).check_integrity()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_tokens": 0}, r"num_tokens must be in \[1, 1024\], got 0"),
        ({"min_ngram": 0}, "min_ngram must be ≥ 1, got 0"),
        ({"max_ngram": 1, "min_ngram": 2}, r"max_ngram must be ≥ min_ngram \(2\), got 1"),
    ],
)
def test_bad_values_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bigram(**fields)


def build(path: Path, target: Any, **settings: Any) -> Header:
    own = {"tokenizer_hash": "t", "model": {}, "num_next": 3, "batch_size": 5}
    return build_bigram_store(path, target, **{**own, **settings})


def test_a_store_holds_what_the_target_ranks_behind_every_token(tmp_path: Path) -> None:
    target, told = ToyTarget(vocab_size=12), []
    header = build(tmp_path / "store", target, progress=told.append)
    table, opened = open_bigram_store(tmp_path / "store", tokenizer_hash="t", vocab_size=12)
    assert told == [5, 5, 2]
    assert opened == header
    assert (header.num_bytes, header.num_tokens) == (216, 12)
    assert header.options == {"num_next": 3, "prefix_ids": []}
    table.check_integrity()
    for token_id in range(12):
        probs = torch.softmax(target.logits([token_id]), dim=-1).numpy()
        expected = np.argsort(-probs)[:3]
        assert table.next_ids[token_id].tolist() == expected.tolist()
        assert table.probs[token_id] == pytest.approx(probs[expected], rel=1e-3)


class BatchedToy(ToyTarget):
    """Reads several prompts at a time; notes how many."""

    def last_logits_of(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        self.sizes = [*getattr(self, "sizes", []), len(prompts)]
        return torch.stack([self.logits(ids) for ids in prompts])


def test_many_tokens_are_read_at_a_time_where_the_target_can(tmp_path: Path) -> None:
    plain, batched = ToyTarget(vocab_size=12), BatchedToy(vocab_size=12)
    hashes = [
        build(tmp_path / f"{n}-{len(prefix_ids)}", target, prefix_ids=prefix_ids).content_hash
        for n, target in enumerate((plain, batched))
        for prefix_ids in ([], [3])
    ]
    assert hashes[:2] == hashes[2:]
    assert hashes[0] != hashes[1]
    assert batched.sizes == 2 * [5, 5, 2]


def test_tokens_are_read_behind_the_prefix(tmp_path: Path) -> None:
    target = ToyTarget(vocab_size=12)
    header = build(tmp_path / "store", target, prefix_ids=[3, 7])
    assert header.options["prefix_ids"] == [3, 7]
    table, _ = open_bigram_store(tmp_path / "store")
    for token_id in range(12):
        expected = torch.argsort(target.logits([3, 7, token_id]), descending=True)[:3]
        assert table.next_ids[token_id].tolist() == expected.tolist()


def test_a_table_is_as_wide_as_the_vocabulary_at_most(tmp_path: Path) -> None:
    header = build(tmp_path / "a", ToyTarget(vocab_size=4), num_next=9)
    assert header.options["num_next"] == 4
    with pytest.raises(DatastoreError, match="num_next must be ≥ 1, got 0"):
        build(tmp_path / "b", ToyTarget(vocab_size=4), num_next=0)


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "store", ToyTarget(vocab_size=4))
    file = tmp_path / "store" / "probs.bin"
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(DatastoreError, match=r"probs\.bin has 22 bytes instead of 24"):
        open_bigram_store(tmp_path / "store")
