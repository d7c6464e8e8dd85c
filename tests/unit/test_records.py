"""Rows: one line each, complete or cut off, never twice."""

from __future__ import annotations

import json
import os

import pytest

from benchmarks.files import RunFolderError
from benchmarks.records import Request, RequestError, Turn, hash_ids
from benchmarks.row_log import RowLog, read_requests
from benchmarks.steps import Steps
from methods.generation import StepRecord
from primitives.types import DraftTree

TREE = DraftTree.from_nodes([4, 5, 6, 9, 9], [-1, 0, 1, 0, 3])
STEPS = Steps.from_records(
    [
        StepRecord(
            num_draft_nodes=4, num_accepted=2, num_output=3, reasons=("pending", "em", "em"),
            sources=("", "a", "a"), match_len=2, draft_depth=3, candidate_tokens=9,
            candidate_nodes=7, num_strict=1,
            regrets=(0.0, 0.25, 0.0), regret_bounds=(0.0, 0.5, 0.0), tree=TREE, path=(0, 1, 2),
            num_below=0,
        ),
        StepRecord(
            num_draft_nodes=0, num_accepted=0, num_output=1, reasons=("pending",),
            sources=("",), match_len=0, draft_depth=0, candidate_tokens=0,
            candidate_nodes=0, regrets=(),
            num_strict=1,
            regret_bounds=(), tree=DraftTree.root_only(7), path=(0,), num_below=0,
        ),
    ],
    [100, 50],
)  # fmt: skip


def make_request(prompt_id="p", text="héllo\u2028\n", **changes):
    turn = Turn(
        num_prompt_tokens=3,
        prompt_sha=hash_ids([1, 2, 3]),
        prompt_ids=(1, 2, 3),
        output_ids=(4, 5, 6, 7, 8),
        text=text,
        finish_reason="length",
        wall_ns=200,
        phase_ns={"prefill": 40, "forward": 160},
        steps=STEPS,
    )
    fields = {"category": "qa", "arm": "method", "repeat": 0, "order": 0, "turns": (turn,)}
    return Request(prompt_id=prompt_id, **(fields | changes))


def test_steps_are_columns():
    assert len(STEPS) == 2
    assert STEPS.num_output == (3, 1)
    assert STEPS.step_ns == (100, 50)
    with pytest.raises(ValueError, match=r"num_strict must have one entry per step \(1\), got 0"):
        Steps(num_output=(1,), num_draft_nodes=(0,), num_accepted=(0,))


@pytest.mark.parametrize(
    "text", ["plain", "two\nlines\u2028", "日本語 🎲", "lone \ud800 surrogate"]
)
def test_a_row_is_one_line_and_comes_back(text):
    request = make_request(text=text)
    line = request.to_line()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert Request.from_line(line) == request


def test_an_error_row_comes_back_without_numbers():
    error = RequestError(type="ContextOverflow", message="too long")
    request = make_request(turns=(), error=error)
    assert Request.from_line(request.to_line()) == request
    with pytest.raises(ValueError, match="must hold either turns or an error"):
        make_request(error=error)
    with pytest.raises(ValueError, match="must hold either turns or an error"):
        make_request(turns=())


def test_words_are_stored_once():
    value = STEPS.to_json()["reasons"]
    assert value == {"values": [("pending", "em", "em"), ("pending",)], "codes": [0, 1]}


def test_steps_must_account_for_every_token():
    with pytest.raises(ValueError, match=r"num_output must sum to .* \(3\), got 4"):
        Turn(**(vars(make_request().turns[0]) | {"output_ids": (1, 2, 3, 4)}))


def write_rows(path, *names):
    log = RowLog(path)
    for name in names:
        log.append(make_request(name))
    log.close()


@pytest.mark.parametrize(
    "tail",
    [
        make_request("d").to_line()[:-1],  # All of a row but its line end.
        make_request("d").to_line()[:50],
        b"{",
        b"\0" * 100,  # A file system that lost power: the length is there, the content is not.
        b'{"prompt_id": "d\n',
    ],
)
def test_a_torn_end_is_cut_off(tmp_path, tail):
    path = tmp_path / "requests.jsonl"
    write_rows(path, "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert [request.prompt_id for request in read_requests(path)] == ["a", "b"]
    log = RowLog(path)
    assert path.read_bytes() == whole
    log.append(make_request("c"))
    log.close()
    assert [request.prompt_id for request in read_requests(path)] == ["a", "b", "c"]


@pytest.mark.parametrize("damage", [b"{", b'{"schema_version": 1}', b"[]", b"\xff"])
def test_damage_in_the_middle_is_an_error_with_its_place(tmp_path, damage):
    path = tmp_path / "requests.jsonl"
    write_rows(path, "a", "b")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage + b"\n" + lines[1])
    with pytest.raises(RunFolderError, match=r"requests\.jsonl:2: .* damaged line"):
        RowLog(path)


def test_another_schema_is_an_error_even_at_the_end(tmp_path):
    path = tmp_path / "requests.jsonl"
    row = json.loads(make_request().to_line()) | {"schema_version": 99}
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(RunFolderError, match="schema_version must be 2, got 99"):
        RowLog(path)


def test_no_key_comes_twice(tmp_path):
    path = tmp_path / "requests.jsonl"
    log = RowLog(path)
    log.append(make_request("a"))
    assert ("a", 0, "method") in log
    with pytest.raises(ValueError, match="is recorded already"):
        log.append(make_request("a"))
    log.append(make_request("a", repeat=1))
    log.append(make_request("a", arm="vanilla"))
    log.close()
    path.write_bytes(path.read_bytes() + make_request("a").to_line())
    with pytest.raises(RunFolderError, match=r":4: .* recorded twice"):
        read_requests(path)


def test_rows_may_be_taken_out(tmp_path):
    path = tmp_path / "requests.jsonl"
    write_rows(path, "a", "b", "c")
    log = RowLog(path, keep=lambda request: request.prompt_id != "b")
    log.append(make_request("b"))
    log.close()
    assert [request.prompt_id for request in read_requests(path)] == ["a", "c", "b"]


def test_a_full_disk_is_one_clear_error_and_leaves_a_file_that_can_be_continued(
    tmp_path, monkeypatch
):
    path = tmp_path / "requests.jsonl"
    write_rows(path, "a")
    log, write = RowLog(path), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:20]))
    with pytest.raises(RunFolderError, match="No space left on device"):
        log.append(make_request("b"))
    log.close()
    monkeypatch.undo()
    write_rows(path, "b")
    assert [request.prompt_id for request in read_requests(path)] == ["a", "b"]
