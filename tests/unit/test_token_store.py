"""Token stores on disk: the same answers as in memory, and errors that say what is wrong."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.datastores import folder as datastore_folder
from methods.datastores import tokens as token_stores
from methods.datastores.folder import HEADER, DatastoreError, Header, read_header
from methods.datastores.tokens import build_memory, build_token_store, open_token_store
from primitives.structures.suffix_array import SuffixArray

DOCUMENTS = [[0, 1, 2, 0, 1], [], [3, 0, 1, 2, 2], [2]]


def build(path: Path, documents: Any = DOCUMENTS, vocab_size: int = 4, **more: Any) -> Header:
    return build_token_store(path, documents, vocab_size=vocab_size, tokenizer_hash="abc", **more)


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    build(tmp_path / "store")
    return tmp_path / "store"


def test_files_of_a_small_store(store_path: Path) -> None:
    tokens = np.fromfile(store_path / "tokens-00000.bin", dtype="<u2")
    assert tokens.tolist() == [0, 1, 2, 0, 1, 4, 3, 0, 1, 2, 2, 4, 2, 4]
    order = np.fromfile(store_path / "order-00000.bin", dtype="<i4")
    # Text backwards: 0 | 0 2 | 0 3 | 1 0 .. | 2 1 0 (end 3) | 2 1 0 3 (end 10) | 3.
    assert order.tolist() == [1, 4, 8, 2, 9, 3, 10, 7]
    starts = np.fromfile(store_path / "starts-00000.bin", dtype="<i4")
    assert starts.tolist() == [0, 3, 5, 7, 8]


def test_header_counts_what_was_written(store_path: Path) -> None:
    header = read_header(store_path)
    assert (header.num_documents, header.num_tokens) == (3, 11)
    assert (header.kind, header.token_dtype, header.tokenizer_hash) == ("tokens", "uint16", "abc")
    assert header.options == {"chunk_tokens": 2**27}


documents_st = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=8)


@given(documents_st, st.integers(2, 40), st.sampled_from([3, 70_000]))
def test_chunks_equal_naively_sorted_ones(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[list[int]],
    chunk_tokens: int,
    vocab_size: int,
) -> None:
    documents = [[0], *documents]
    path = tmp_path_factory.mktemp("stores") / "store"
    header = build(path, documents, vocab_size, chunk_tokens=chunk_tokens)
    store, _ = open_token_store(path)
    assert header.num_tokens == sum(map(len, documents))
    parts = [
        ids[start : start + chunk_tokens - 1]
        for ids in documents
        for start in range(0, len(ids), chunk_tokens - 1)
    ]
    text = [token for chunk in store.chunks for token in chunk.tokens.tolist()]
    assert text == [token for part in parts for token in (*part, vocab_size)]
    for chunk in store.chunks:
        assert 0 < len(chunk.tokens) <= chunk_tokens
        chunk.check_integrity()
        naive = SuffixArray.from_tokens(chunk.tokens.astype(np.int64), vocab_size)
        assert chunk.order.tolist() == naive.order.tolist()
        assert chunk.starts.tolist() == naive.starts.tolist()


def test_documents_are_streamed_and_progress_is_told(tmp_path: Path) -> None:
    told: list[int] = []
    build(
        tmp_path / "store",
        (np.array(ids, dtype=np.uint16) for ids in DOCUMENTS),
        chunk_tokens=7,
        progress=told.append,
    )
    assert told == [5, 10, 11]


def test_ids_above_16_bits_are_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(65_000, 151_936, 400) for _ in range(3)]
    header = build(tmp_path / "store", documents, 151_936)
    store, _ = open_token_store(tmp_path / "store", vocab_size=151_936)
    store.check_integrity()
    assert header.token_dtype == "uint32"
    match = store.longest_match(documents[1][:300], min_len=2, max_len=16)
    assert (match.match_len, match.num_hits) == (16, 1)
    [(chunk, _, ends)] = store.ends(match, 10)
    assert chunk.continuation(int(ends[0]), 5) == documents[1][300:305].tolist()
    bytes_of_starts = 4 * (151_936 + 1)
    assert header.num_bytes - bytes_of_starts <= 8 * header.num_tokens


@pytest.mark.parametrize("documents", [[], [[]], [[], []]])
def test_an_empty_corpus_is_refused(tmp_path: Path, documents: list[list[int]]) -> None:
    with pytest.raises(DatastoreError, match="there is no document with a token"):
        build(tmp_path / "store", documents)
    assert os.listdir(tmp_path) == [".store.lock"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([1, 4, 7], "document 1 holds the id 4, outside the vocabulary of 4"),
        ([1, -2], "document 1 holds the id -2, outside the vocabulary of 4"),
        (np.array([0.5]), "document 1 must be a sequence of ints, got float64"),
    ],
)
def test_what_is_no_token_is_refused(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(DatastoreError, match=message):
        build(tmp_path / "store", iter([[0, 1], document]))
    assert not (tmp_path / "store").exists()


def test_a_chunk_holds_a_token_and_its_separator(tmp_path: Path) -> None:
    with pytest.raises(DatastoreError, match=r"chunk_tokens must be in \[2, .*, got 1"):
        build(tmp_path / "store", chunk_tokens=1)


@pytest.mark.parametrize("num_tokens", [None, 201])
def test_too_little_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_tokens: int | None
) -> None:
    """A token takes eight bytes: two of its id, one to sort, four of its suffix, and a mark."""
    assert build_memory(201, 2**27, 4) - build_memory(200, 2**27, 4) == 8
    assert build_memory(10**6, 100, 4) == build_memory(100, 100, 4)
    available = build_memory(150, 2**27, 4)
    held = 0 if num_tokens else 2 * 201  # A chunk that is in memory already is not missing.
    monkeypatch.setattr(token_stores, "available_memory", lambda: available - held)
    with pytest.raises(DatastoreError, match=r"takes 64 MiB of memory.*to at most 150$"):
        build(tmp_path / "store", [[0, 1, 2, 3] * 50], num_tokens=num_tokens)
    assert not (tmp_path / "store").exists()


def test_the_advice_about_memory_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_stores, "available_memory", lambda: build_memory(50, 50, 4))
    with pytest.raises(DatastoreError, match=r"at most 50$"):
        build(tmp_path / "store", [[0, 1, 2, 3] * 50], num_tokens=200)
    header = build(tmp_path / "store", [[0, 1, 2, 3] * 50], num_tokens=200, chunk_tokens=50)
    assert header.num_tokens == 200


def test_unknown_memory_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_stores, "available_memory", lambda: None)
    assert build(tmp_path / "store").num_tokens == 11


def test_available_memory_is_that_of_the_system() -> None:
    available = token_stores.available_memory()
    assert available is None or 2**20 < available < 2**50


def test_too_little_disk_space_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        token_stores.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 50})
    )
    with pytest.raises(DatastoreError, match="disk space, 0 MiB are free in"):
        build(tmp_path / "store")


def test_a_store_for_another_use_is_refused(store_path: Path) -> None:
    with pytest.raises(DatastoreError, match="tokenizer_hash 'abc', but 'xyz' is needed"):
        open_token_store(store_path, tokenizer_hash="xyz")
    with pytest.raises(DatastoreError, match="vocab_size 4, but 5 is needed"):
        open_token_store(store_path, vocab_size=5)


def test_answers_of_another_model_are_refused(tmp_path: Path) -> None:
    build(tmp_path / "store", model={"name": "a"})
    open_token_store(tmp_path / "store", model={"name": "a"})
    with pytest.raises(DatastoreError, match="model of name 'a', the target model has 'b'"):
        open_token_store(tmp_path / "store", model={"name": "b"})


def test_a_newer_format_is_refused(store_path: Path) -> None:
    values = json.loads((store_path / HEADER).read_text())
    values["format_version"] += 1
    (store_path / HEADER).write_text(json.dumps(values))
    with pytest.raises(DatastoreError, match="has format 2, this version reads 1"):
        open_token_store(store_path)


@pytest.mark.parametrize("name", ["tokens-00000.bin", "order-00000.bin", "starts-00000.bin"])
def test_damage_is_noticed(store_path: Path, name: str) -> None:
    whole = (store_path / name).read_bytes()
    (store_path / name).write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(DatastoreError, match=f"{name} is damaged"):
        open_token_store(store_path)
    (store_path / name).write_bytes(whole[:-2])
    with pytest.raises(DatastoreError, match=f"{name} has {len(whole) - 2} bytes instead of"):
        open_token_store(store_path)
    (store_path / name).unlink()
    with pytest.raises(DatastoreError, match=f"lacks its file {name}"):
        open_token_store(store_path)


def test_damage_of_large_files_is_noticed_in_the_blocks_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "store", [np.arange(4) % 4] * 3000)
    monkeypatch.setattr(datastore_folder, "FULL_CHECK_BYTES", 0)
    open_token_store(tmp_path / "store")
    file = tmp_path / "store" / "tokens-00000.bin"
    file.write_bytes(b"\xff\xff" + file.read_bytes()[2:])
    with pytest.raises(DatastoreError, match="damaged"):
        open_token_store(tmp_path / "store")


def test_files_that_do_not_belong_together_are_refused(store_path: Path) -> None:
    """A header that claims another vocabulary: the starts have the wrong length."""
    header = read_header(store_path)
    (store_path / HEADER).unlink()
    datastore_folder.write_header(store_path, dataclasses.replace(header, vocab_size=5))
    with pytest.raises(DatastoreError, match="cannot be mapped: chunk 0 has 4 tokens"):
        open_token_store(store_path)


def test_what_a_killed_build_left_is_no_store_and_is_swept_away(
    store_path: Path, tmp_path: Path
) -> None:
    half = tmp_path / ".other.building-12345"
    half.mkdir()
    (half / "tokens-00000.bin").write_bytes(b"\0\0")
    with pytest.raises(DatastoreError, match="is no datastore"):
        open_token_store(half)
    with pytest.raises(DatastoreError, match="does not exist"):
        open_token_store(tmp_path / "other")
    build(tmp_path / "other")
    assert not half.exists()
    assert open_token_store(tmp_path / "other")[1] == open_token_store(store_path)[1]


def test_a_store_is_never_overwritten(store_path: Path) -> None:
    with pytest.raises(DatastoreError, match="exists already"):
        build(store_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_read_only_place_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(DatastoreError, match="cannot write"):
            build(tmp_path / "store")
    finally:
        tmp_path.chmod(0o700)
