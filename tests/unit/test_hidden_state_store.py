"""The hidden-state store: what is on disk, what a search finds, and what is refused."""

from __future__ import annotations

import copy
import pickle
import shutil
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.datastores import hidden_states
from methods.datastores.folder import DatastoreError, Header, read_header
from methods.datastores.hidden_spool import Document
from methods.datastores.hidden_states import HiddenStates, build_hidden_store, open_hidden_store
from methods.datastores.projection import Projection, fit_projection
from primitives.structures.hidden_states import GrowingKeys, HiddenStateStore, unit_rows

HIDDEN_SIZE, VOCAB_SIZE = 12, 40
MODEL = {"name": "a model"}


def clustered(
    num: int, seed: int, *, hidden_size: int = HIDDEN_SIZE, num_clusters: int = 50
) -> np.ndarray:
    """States around random centres, which the seed does not change."""
    centres = np.random.default_rng(99).normal(size=(num_clusters, hidden_size))
    rng = np.random.default_rng(seed)
    noise = 0.4 * rng.normal(size=(num, hidden_size))
    return (centres[rng.integers(num_clusters, size=num)] + noise).astype(np.float32)


def documents(num_keys: int, num_documents: int = 4, **kwargs: Any) -> list[Document]:
    """Every token but the first of a document follows a state."""
    per_document = num_keys // num_documents
    rng = np.random.default_rng(7)
    return [
        (
            rng.integers(0, VOCAB_SIZE, per_document + 1),
            clustered(per_document, seed, **kwargs),
            np.arange(1, per_document + 1),
        )
        for seed in range(num_documents)
    ]


def build(path: Path, docs: Any, **kwargs: Any) -> Header:
    settings = {"vocab_size": VOCAB_SIZE, "tokenizer_hash": "t", "model": MODEL, "dim": 6}
    return build_hidden_store(path, docs, **{**settings, **kwargs})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 400 keys."""
    path = tmp_path_factory.mktemp("stores") / "small"
    build(path, documents(400))
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 12,000 keys, with an index."""
    path = tmp_path_factory.mktemp("stores") / "large"
    build(path, documents(12_000, hidden_size=32, num_clusters=300), dim=32, index="ivf_pq")
    return path


@pytest.fixture
def copied(small: Path, tmp_path: Path) -> Path:
    """A store that may be damaged."""
    return Path(shutil.copytree(small, tmp_path / "copied"))


def stored_keys(path: Path, dim: int = 6) -> np.ndarray:
    return np.fromfile(path / "keys.f16", dtype=np.float16).reshape(-1, dim).astype(np.float32)


# --- projection ---


def test_projection_equals_a_hand_computation() -> None:
    # Means 2 and 20, deviations 1 and 10, equal z-scores: the components are (1, 1) / sqrt(2) and
    # (1, -1) / sqrt(2), the latter up to its sign.
    rows = np.array([[1, 10], [3, 30], [1, 10], [3, 30]], dtype=np.float32)
    projection = fit_projection(rows, dim=2, num_train=10, seed=0)
    assert projection.mean.tolist() == [2, 20]
    half = 0.5**0.5
    np.testing.assert_allclose(projection.weights[:, 0], [half, half / 10], rtol=1e-5)
    # (5, 20) has the z-scores (3, 0): both components see 3 / sqrt(2).
    key = projection(torch.tensor([5.0, 20.0]))
    np.testing.assert_allclose(np.abs(key), [half, half], rtol=1e-5)
    assert key[0] > 0


def test_components_come_by_falling_variance_and_are_orthogonal() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(5000, 8)) @ rng.normal(size=(8, 8)) + 5).astype(np.float32)
    projection = fit_projection(rows, dim=4, num_train=10_000, seed=0)
    scores = (rows - projection.mean) @ projection.weights
    covariance = np.cov(scores.T)
    assert np.all(np.diff(np.diag(covariance)) < 0)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-2)


def test_projection_is_fitted_on_a_seeded_sample() -> None:
    rows = clustered(1000, 0)
    fitted = [fit_projection(rows, dim=3, num_train=100, seed=seed) for seed in (0, 0, 1)]
    assert np.array_equal(fitted[0].weights, fitted[1].weights)
    assert not np.array_equal(fitted[0].mean, fitted[2].mean)


def test_a_constant_dimension_does_no_harm() -> None:
    rows = clustered(100, 0)
    rows[:, 3] = 7
    projection = fit_projection(rows, dim=12, num_train=100, seed=0)
    assert np.isfinite(projection(torch.from_numpy(rows))).all()


def test_projection_takes_any_type_and_shape_and_survives_a_file(tmp_path: Path) -> None:
    projection = fit_projection(clustered(100, 0), dim=5, num_train=100, seed=0)
    projection.save(tmp_path / "p.npy")
    again = Projection.load(tmp_path / "p.npy")
    states = torch.from_numpy(clustered(4, 1)).reshape(2, 2, HIDDEN_SIZE)
    keys = again(states)
    assert keys.shape == (2, 2, 5)
    assert keys.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(keys, axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(keys[1, 0], projection(states[1, 0].double()), atol=1e-6)
    np.testing.assert_allclose(keys, again(states.bfloat16()), atol=0.05)


# --- what is on disk ---


def test_layout_of_two_documents(tmp_path: Path) -> None:
    #   tokens  1 2 3 | 4 5 6 7 |      keys before 2 3, and before 4 6
    states = clustered(4, 0)
    docs = [
        (np.array([1, 2, 3]), states[:2], np.array([1, 2])),
        (np.array([4, 5, 6, 7]), states[2:], np.array([0, 2])),
    ]
    header = build(tmp_path / "s", docs, sources=[{"name": "x"}], options={"answers": "own"})
    assert (header.num_tokens, header.num_documents) == (7, 2)
    assert header.token_dtype == "uint16"
    end = VOCAB_SIZE
    tokens = np.fromfile(tmp_path / "s" / "tokens.bin", dtype=np.uint16)
    assert tokens.tolist() == [1, 2, 3, end, 4, 5, 6, 7, end]
    offsets = np.fromfile(tmp_path / "s" / "offsets.bin", dtype=np.uint32)
    assert offsets.tolist() == [1, 2, 4, 6]
    assert sorted(header.files) == ["keys.f16", "offsets.bin", "projection.npy", "tokens.bin"]
    assert header.options["answers"] == "own"
    assert (header.options["num_keys"], header.options["hidden_size"]) == (4, HIDDEN_SIZE)
    assert read_header(tmp_path / "s") == header

    store, opened = open_hidden_store(tmp_path / "s")
    assert opened == header
    assert store.continuation(1, 5) == (2, 3)
    assert store.continuation(4, 3) == (4, 5, 6)
    assert store.continuation(6, 10) == (6, 7)


def test_token_type_grows_with_the_vocabulary(tmp_path: Path) -> None:
    # The separator has the id vocab_size: 65535 is the last that fits 16 bits.
    for vocab_size, name in ((2**16 - 1, "uint16"), (2**16, "uint32")):
        docs = [(np.array([0, vocab_size - 1]), clustered(2, 0), np.array([0, 1]))]
        header = build(tmp_path / name, docs, vocab_size=vocab_size)
        assert header.token_dtype == name
        store, _ = open_hidden_store(tmp_path / name)
        assert store.continuation(1, 5) == (vocab_size - 1,)


def test_equal_input_gives_equal_files(tmp_path: Path) -> None:
    docs = documents(10_000)
    for index in ("flat", "ivf_pq"):
        hashes = [
            build(tmp_path / f"{index}{n}", iter(docs), index=index).content_hash for n in range(2)
        ]
        assert hashes[0] == hashes[1]
    assert build(tmp_path / "other", docs, index="flat", dim=5).content_hash != hashes[0]


def test_spool_type_is_a_matter_of_precision(tmp_path: Path) -> None:
    for spool in ("float16", "float32"):
        build(tmp_path / spool, documents(200), spool=spool)
        assert not (tmp_path / spool / hidden_states.RAW).exists()
    keys = [stored_keys(tmp_path / spool) for spool in ("float16", "float32")]
    np.testing.assert_allclose(keys[0], keys[1], atol=0.01)
    huge = [(np.array([1]), np.full((1, 3), 1e6, dtype=np.float32), np.array([0]))]
    with pytest.raises(DatastoreError, match="document 0: its keys overflow float16: use float32"):
        build(tmp_path / "huge", huge)
    assert build(tmp_path / "huge", huge, spool="float32").options["spool"] == "float32"


# --- searching ---


def test_keys_are_the_projected_states(small: Path, large: Path) -> None:
    for path, docs in (
        (small, documents(400)),
        (large, documents(12_000, hidden_size=32, num_clusters=300)),
    ):
        store, _ = open_hidden_store(path)
        states = torch.from_numpy(np.concatenate([keys for _, keys, _ in docs]))
        keys = stored_keys(path, store.dim)
        np.testing.assert_allclose(keys, store.project(states), atol=4e-3)


def test_flat_search_equals_brute_force(small: Path) -> None:
    store, _ = open_hidden_store(small)
    assert isinstance(store, HiddenStateStore)
    assert store.dim == 6
    offsets = np.fromfile(small / "offsets.bin", dtype=np.uint32)
    for query in store.project(torch.from_numpy(clustered(20, 77))):
        positions, cosines = store.search(query, 9)
        exact = stored_keys(small) @ query
        best = np.argsort(-exact, kind="stable")[:9]
        assert positions.tolist() == offsets[best].tolist()
        np.testing.assert_allclose(cosines, exact[best], atol=1e-6)


def test_asking_for_more_than_there_is(small: Path) -> None:
    store, _ = open_hidden_store(small)
    positions, cosines = store.search(store.project(torch.ones(HIDDEN_SIZE)), 1000)
    assert len(set(positions.tolist())) == len(cosines) == 400


def test_ties_go_to_the_lower_position(tmp_path: Path) -> None:
    same = np.repeat(clustered(2, 0), 3, axis=0)  # Two states, three times each.
    build(tmp_path / "s", [(np.arange(7), same, np.arange(1, 7))])
    store, _ = open_hidden_store(tmp_path / "s")
    positions, _ = store.search(store.project(torch.from_numpy(same[3])), 6)
    assert positions.tolist() == [4, 5, 6, 1, 2, 3]


def test_index_finds_most_of_the_true_neighbours(large: Path) -> None:
    store, header = open_hidden_store(large)
    assert header.options["index"] == "ivf_pq"
    assert header.report["recall_at_16"] >= 0.95
    keys = stored_keys(large, 32)
    offsets = np.fromfile(large / "offsets.bin", dtype=np.uint32)
    queries = store.project(torch.from_numpy(clustered(50, 77, hidden_size=32, num_clusters=300)))
    num_found = 0
    for query in queries:
        positions, cosines = store.search(query, 16)
        exact = keys @ query
        assert cosines.tolist() == sorted(cosines.tolist(), reverse=True)
        np.testing.assert_allclose(cosines, exact[np.searchsorted(offsets, positions)], atol=1e-6)
        num_found += len(np.intersect1d(positions, offsets[np.argsort(-exact)[:16]]))
    assert num_found >= 0.9 * 16 * len(queries)


def test_without_reranking_the_keys_are_not_kept(tmp_path: Path) -> None:
    docs = documents(10_000)
    build(tmp_path / "exact", docs, index="ivf_pq")
    header = build(tmp_path / "rough", docs, index="ivf_pq", rerank=False)
    assert sorted(header.files) == ["index.faiss", "offsets.bin", "projection.npy", "tokens.bin"]
    exact, exact_header = open_hidden_store(tmp_path / "exact")
    rough, rough_header = open_hidden_store(tmp_path / "rough")
    assert rough_header.report["recall_at_16"] <= exact_header.report["recall_at_16"]
    query = exact.project(torch.from_numpy(docs[0][1][0]))
    positions, cosines = rough.search(query, 5)
    assert cosines.tolist() == sorted(cosines.tolist(), reverse=True)
    assert 1 in exact.search(query, 5)[0].tolist()
    assert len(set(positions.tolist())) == 5


def test_copies_answer_alike(small: Path, large: Path) -> None:
    for path in (small, large):
        store, _ = open_hidden_store(path)
        query = np.eye(store.dim, dtype=np.float32)[0]
        expected = store.search(query, 5)
        for other in (copy.deepcopy(store), pickle.loads(pickle.dumps(store))):
            assert isinstance(other, HiddenStates)
            for actual, array in zip(other.search(query, 5), expected, strict=True):
                assert actual.tolist() == array.tolist()


# --- what is refused ---


def test_store_of_another_purpose_is_refused(small: Path) -> None:
    open_hidden_store(
        small,
        tokenizer_hash="t",
        vocab_size=VOCAB_SIZE,
        model={**MODEL, "more": 1},
        hidden_size=HIDDEN_SIZE,
    )
    for given_, message in (
        ({"model": {"name": "another"}}, "'a model', the target model has 'another'"),
        ({"hidden_size": 13}, "states of size 12, the target model has hidden_size 13"),
        ({"tokenizer_hash": "u"}, "tokenizer_hash 't', but 'u' is needed"),
        ({"vocab_size": 41}, "vocab_size 40, but 41 is needed"),
    ):
        with pytest.raises(DatastoreError, match=message):
            open_hidden_store(small, **given_)


@pytest.mark.parametrize("name", ["tokens.bin", "offsets.bin", "projection.npy", "keys.f16"])
def test_damage_is_noticed(copied: Path, name: str) -> None:
    file = copied / name
    intact = file.read_bytes()
    flipped = bytearray(intact)
    flipped[len(flipped) // 2] ^= 1
    for content, message in ((intact[:-1], "truncated"), (bytes(flipped), "damaged")):
        file.write_bytes(content)
        with pytest.raises(DatastoreError, match=f"{name} .*{message}"):
            open_hidden_store(copied)
    file.unlink()
    with pytest.raises(DatastoreError, match=f"lacks its file {name}"):
        open_hidden_store(copied)


@pytest.mark.parametrize("name", ["tokens.bin", "offsets.bin", "keys.f16"])
def test_what_cannot_be_mapped_is_said(
    copied: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A file may change behind the check of its hash."""
    monkeypatch.setattr(hidden_states, "check_files", lambda *_: None)
    (copied / name).write_bytes(b"odd")
    with pytest.raises(DatastoreError, match=r"copied cannot be mapped: .*multiple"):
        open_hidden_store(copied)
    (copied / name).unlink()
    with pytest.raises(DatastoreError, match=r"copied cannot be mapped: .*No such file"):
        open_hidden_store(copied)


def test_missing_faiss_is_explained(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(DatastoreError, match="pip install faiss-cpu"):
        open_hidden_store(small)
    with pytest.raises(DatastoreError, match="pip install faiss-cpu"):
        build(tmp_path / "s", documents(8))
    assert list(tmp_path.iterdir()) == []


STATES = clustered(2, 0)
GOOD: Document = (np.array([1, 2, 3]), STATES, np.array([1, 2]))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ((np.array([1, 40, 3]), STATES, np.array([1, 2])), r"in \[0, 40\), got 40"),
        ((np.array([1, -1, 3]), STATES, np.array([1, 2])), r"in \[0, 40\), got -1"),
        ((np.array([1.0, 2.0]), STATES, np.array([0, 1])), "token ids must be integers"),
        ((np.array([1, 2, 3]), STATES[0], np.array([1, 2])), r"keys must be floats \[k, d\]"),
        ((np.array([1, 2, 3]), STATES[:, :5], np.array([1, 2])), "size 5, those before it 12"),
        ((np.array([1, 2, 3]), STATES, np.array([1])), "2 keys need as many positions"),
        ((np.array([1, 2, 3]), STATES, np.array([1, 3])), r"in \[0, 3\), got 1 to 3"),
        ((np.array([1, 2, 3]), STATES, np.array([2, 2])), "positions must ascend, got 2 behind 2"),
        ((np.array([1, 2, 3]), STATES * np.nan, np.array([1, 2])), "a key is not finite"),
        ((np.array([1, 2, 3]), STATES * np.inf, np.array([1, 2])), "a key is not finite"),
    ],
)
def test_malformed_documents_are_named(bad: Document, message: str, tmp_path: Path) -> None:
    with pytest.raises(DatastoreError, match=f"document 1: .*{message}"):
        build(tmp_path / "s", [GOOD, bad])
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_unusable_settings_are_refused(tmp_path: Path) -> None:
    no_key = (np.array([1, 2]), STATES[:0], np.array([], dtype=np.int64))
    for docs in ([], [no_key]):
        with pytest.raises(DatastoreError, match="would be empty"):
            build(tmp_path / "s", docs)
    assert build(tmp_path / "s", [no_key, GOOD]).options["num_keys"] == 2
    with pytest.raises(DatastoreError, match="needs 10000 keys to learn from, got 2: use flat"):
        build(tmp_path / "t", [GOOD], index="ivf_pq")
    for field in ("dim", "train_keys"):
        with pytest.raises(DatastoreError, match=f"{field} must be ≥ 1, got 0"):
            build(tmp_path / "t", [GOOD], **{field: 0})


def test_full_disk_is_noticed_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    # 1000 keys: 24 bytes each as raw states, 3 * 6 + 16 in their final form.
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 57_999))
    with pytest.raises(DatastoreError, match="1000 keys of size 12 need"):
        build(tmp_path / "s", [GOOD], expected_keys=1000)
    build(tmp_path / "s", [GOOD], expected_keys=999)


def test_broken_stream_leaves_nothing(tmp_path: Path) -> None:
    def stream() -> Any:
        yield GOOD
        raise RuntimeError("out of text")

    with pytest.raises(RuntimeError, match="out of text"):
        build(tmp_path / "s", stream())
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    build(tmp_path / "s", [GOOD, GOOD], progress=lambda *args: told.append(args))
    assert told == [("reading", 2), ("reading", 4), ("fitting", 0), ("projecting", 4)]


# --- keys of the text so far ---


@given(data=st.data(), dim=st.integers(1, 3))
def test_growing_keys_equal_a_sort(data: st.DataObject, dim: int) -> None:
    row = st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=dim, max_size=dim)
    batches = data.draw(st.lists(st.lists(row, max_size=60), max_size=6))
    keys, rows = GrowingKeys(dim), []
    for batch in batches:
        keys.append(unit_rows(np.array(batch, dtype=np.float32).reshape(-1, dim)))
        keys.check_integrity()
        rows += batch
    assert len(keys) == len(rows)
    query = unit_rows(np.array(data.draw(row), dtype=np.float32))
    end, num = data.draw(st.integers(0, len(rows))), data.draw(st.integers(1, 9))
    found, cosines = keys.search(query, num, end=end)
    every, all_cosines = keys.search(query, max(end, 1), end=end)
    assert found.tolist() == every[:num].tolist()
    assert cosines.tolist() == all_cosines[:num].tolist()
    exact = unit_rows(np.array(rows, dtype=np.float32).reshape(-1, dim))[every] @ query
    np.testing.assert_allclose(all_cosines, exact, atol=1e-6)
    pairs = list(zip((-all_cosines).tolist(), (-every).tolist(), strict=True))
    assert pairs == sorted(pairs)  # By falling cosine, then by falling row.


def test_integrity_sees_foreign_lengths_and_remains() -> None:
    keys = GrowingKeys(2)
    keys.append(np.array([[3, 4]], dtype=np.float32))
    with pytest.raises(AssertionError, match="another length"):
        keys.check_integrity()
    keys = GrowingKeys(2)
    keys.append(np.array([[0.6, 0.8]], dtype=np.float32))
    keys._num_rows = 0
    with pytest.raises(AssertionError, match="behind the end"):
        keys.check_integrity()
