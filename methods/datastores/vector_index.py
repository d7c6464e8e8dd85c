"""Nearest neighbours among keys, by faiss: exact for few of them, IVF-PQ with re-ranking for many.

Source: Jegou et al. 2011, "Product quantization for nearest neighbor search"; faiss (Johnson et al.
2017, arXiv 1702.08734).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from methods.datastores.folder import DatastoreError, Header

INDEX = "index.faiss"
MAX_FLAT_KEYS = 20_000
MIN_IVF_KEYS = 10_000
"""With fewer keys the code books of an IVF-PQ index cannot be trained."""
BLOCK_KEYS = 2**16
TRAIN_KEYS_PER_LIST, TRAIN_KEYS_PER_CODE = 64, 64
HITS_PER_NEIGHBOR = 8
"""The index gives this many times what was asked for; the exact cosine ranks them."""
FIRST_NPROBE = 8
RECALL_AT, RECALL_TARGET, NUM_RECALL_QUERIES = 16, 0.95, 256

Progress = Callable[[str, int], None]
"""Told which phase a build is in, and how many keys it has dealt with."""


def index_kind(index: Literal["auto", "flat", "ivf_pq"], num_keys: int) -> str:
    """`flat` or `ivf_pq`.

    Raises:
        DatastoreError: If there are too few keys for what was asked.
    """
    if index == "auto":
        return "flat" if num_keys < MAX_FLAT_KEYS else "ivf_pq"
    if index == "ivf_pq" and num_keys < MIN_IVF_KEYS:
        raise DatastoreError(
            f"an ivf_pq index needs {MIN_IVF_KEYS} keys to learn from, got {num_keys}: use flat"
        )
    return index


def build_ivf(
    file: Path, keys: Float[np.ndarray, "k p"], *, rerank: bool, seed: int, progress: Progress
) -> tuple[int, int, float]:
    """Trains, fills and writes an IVF-PQ index; its nlist, its nprobe and its recall."""
    faiss = import_faiss()
    num_keys, dim = keys.shape
    # At least 39 keys per list: faiss calls for them.
    nlist = min(int(4 * num_keys**0.5), num_keys // 39)
    num_codes = next(m for m in range(max(1, dim // 2), 0, -1) if dim % m == 0)
    quantizer = faiss.IndexFlatIP(dim)
    index = faiss.IndexIVFPQ(quantizer, dim, nlist, num_codes, 8, faiss.METRIC_INNER_PRODUCT)
    index.pq.cp.max_points_per_centroid = TRAIN_KEYS_PER_CODE
    rng = np.random.default_rng(seed)
    num_train = min(num_keys, TRAIN_KEYS_PER_LIST * nlist)
    chosen = np.sort(rng.choice(num_keys, num_train, replace=False))
    progress("training", 0)
    index.train(keys[chosen].astype(np.float32))
    for start in range(0, num_keys, BLOCK_KEYS):
        index.add(keys[start : start + BLOCK_KEYS].astype(np.float32))
        progress("indexing", int(index.ntotal))
    faiss.write_index(index, str(file))
    nprobe, recall = _tune(index, keys, rerank=rerank, rng=rng)
    return nlist, nprobe, recall


def _tune(
    index: Any, keys: Float[np.ndarray, "k p"], *, rerank: bool, rng: np.random.Generator
) -> tuple[int, float]:
    """The least nprobe that reaches the wanted recall, in powers of two up to nlist / 4.

    The queries are stored keys, each without itself among its neighbours.
    """
    numbers = rng.choice(len(keys), NUM_RECALL_QUERIES, replace=False)
    queries = keys[numbers].astype(np.float32)
    least = _least_cosines(keys, queries)
    nprobe = FIRST_NPROBE
    while True:
        index.nprobe = nprobe
        num_found = 0
        for number, query, cosine in zip(numbers, queries, least, strict=True):
            found, _ = nearest(index, keys if rerank else None, query, RECALL_AT + 1)
            found = found[found != number][:RECALL_AT]
            # By cosine, not by number: of several equal keys any will do.
            num_found += int((keys[found].astype(np.float32) @ query >= cosine - 1e-5).sum())
        recall = num_found / (RECALL_AT * len(numbers))
        if recall >= RECALL_TARGET or 2 * nprobe > index.nlist // 4:
            return nprobe, recall
        nprobe *= 2


def _least_cosines(
    keys: Float[np.ndarray, "k p"], queries: Float[np.ndarray, "q p"]
) -> Float[np.ndarray, "q"]:
    """Per query the cosine of the last of its true neighbours, itself not counted."""
    best = np.full((RECALL_AT + 1, len(queries)), -np.inf, dtype=np.float32)
    for block in _blocks(keys):
        merged = np.concatenate([best, block @ queries.T])
        best = np.partition(merged, len(merged) - RECALL_AT - 1, axis=0)[-RECALL_AT - 1 :]
    least: np.ndarray = best.min(axis=0)
    return least


def nearest(
    index: Any, keys: np.ndarray | None, query: Float[np.ndarray, "p"], num: int
) -> tuple[Int[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Numbers and cosines of the best keys: what the index finds, ranked by the exact cosine.

    Without keys, the cosines are the estimates of the index.
    """
    num_hits = min(index.ntotal, num * (1 if keys is None else HITS_PER_NEIGHBOR))
    estimates, numbers = index.search(query[None], num_hits)
    is_hit = numbers[0] >= 0
    numbers, cosines = numbers[0][is_hit], estimates[0][is_hit]
    if keys is not None:
        cosines = keys[numbers].astype(np.float32) @ query
    order = np.lexsort((numbers, -cosines))[:num]
    return numbers[order], cosines[order]


def open_index(path: Path, header: Header, keys: np.ndarray | None, gpu: str) -> Any:
    """The index of a store, mapped where it is a file.

    Raises:
        DatastoreError: If this faiss cannot read it.
    """
    faiss = import_faiss()
    if keys is not None and header.options["index"] == "flat":
        index = faiss.IndexFlatIP(keys.shape[1])
        for block in _blocks(keys):
            index.add(block)
    else:
        flags = getattr(faiss, "IO_FLAG_MMAP_IFC", 0)  # Older versions read the file.
        try:
            index = faiss.read_index(str(path / INDEX), flags)
        except RuntimeError as error:
            raise DatastoreError(
                f"datastore {path}: faiss {faiss.__version__} cannot read {INDEX}, build it again: "
                f"{error}"
            ) from error
        index.nprobe = header.options["nprobe"]
    if gpu == "auto" and faiss.get_num_gpus() > 0:
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    return index


def _blocks(keys: np.ndarray) -> Iterator[Float[np.ndarray, "b p"]]:
    for start in range(0, len(keys), BLOCK_KEYS):
        yield keys[start : start + BLOCK_KEYS].astype(np.float32)


def import_faiss() -> Any:
    """The module.

    Raises:
        DatastoreError: If it is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise DatastoreError(
            "hidden-state datastores are searched with faiss, which is not installed here: "
            "pip install faiss-cpu (or faiss-gpu-cu12)"
        ) from error
    return faiss
