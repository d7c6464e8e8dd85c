"""Texts of single tokens and recorded draft trees."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.records import Request
from benchmarks.runner import run
from benchmarks.traces import token_texts
from support.runs import make_spec, rows_of

PIECES = {1: "\u2581the", 2: "\u2581cat", 3: "s", 4: b"\xc3", 5: b"\xa9"}


class Sentences:
    """Joins pieces as SentencePiece does: the leading space of the first one is lost."""

    eos_id = None

    def encode(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        raise NotImplementedError

    encode_text = encode

    def decode(self, token_ids: Sequence[int]) -> str:
        pieces = [PIECES[i] for i in token_ids]
        data = b"".join(p if isinstance(p, bytes) else p.encode() for p in pieces)
        return data.decode("utf-8", errors="replace").replace("\u2581", " ").removeprefix(" ")


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        ([1, 2, 3], (" the", " cat", "s")),
        ([4, 5, 2], ("\ufffd", "\u00e9", " cat")),
        ([], ()),
    ],
)
def test_tokens_keep_their_spaces_and_halves_join(ids, texts):
    assert token_texts(Sentences(), ids, previous_id=3) == texts


def test_only_the_traced_prompts_carry_trees(tmp_path):
    spec = make_spec(tmp_path, num_traced_prompts=2)
    run(spec)
    rows = rows_of(spec.path)
    traced = [r for r in rows if r.turns[0].output_tokens is not None]
    assert [(r.prompt_id, r.arm) for r in traced] == [("p0", "method"), ("p1", "method")]
    for request in traced:
        turn = request.turns[0]
        assert len(turn.output_tokens) == len(turn.output_ids)
        assert "".join(turn.output_tokens).split() == turn.text.split()
        assert len(turn.steps.trees) == len(turn.steps)
        assert Request.from_line(request.to_line()) == request


def test_trees_retell_the_output(tmp_path):
    """Behind the first node, the committed nodes of a tree are the step's output but its last."""
    spec = make_spec(tmp_path, num_traced_prompts=6)
    run(spec)
    for request in rows_of(spec.path):
        turn = request.turns[0]
        if turn.steps is None or turn.steps.trees is None:
            continue
        position = 0
        for num_output, tree in zip(turn.steps.num_output, turn.steps.trees, strict=True):
            kept = [tree.token_ids[node] for node in tree.path]
            assert list(turn.output_ids[position : position + len(kept)]) == kept
            assert [tree.parents[node] for node in tree.path[1:]] == list(tree.path[:-1])
            assert len(tree.token_ids) == len(tree.tokens) == len(tree.sources)
            position += num_output
