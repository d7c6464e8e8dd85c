"""What benchmarks of speed are fed: prompts, real tokens, and stores made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.datasets import DATASETS, limit_prompts
from methods.cache import cache_root
from methods.datastores.tokens import build_token_store
from methods.targets.base import TextCodec
from methods.targets.smollm2 import ensure_smollm2

CURVE_CONTEXT = 256
"""Committed tokens before the trees of a row curve."""
QUERY_LEN = 24
"""Tokens of a query of a store."""
MILLION = 10**6

Query = list[int]
Item = TypeVar("Item")


def encode_prompts(codec: TextCodec, num_prompts: int) -> list[list[int]]:
    """First turns of quickstart prompts, spread over the categories."""
    dataset = DATASETS.create("quickstart").load("test")
    chosen = limit_prompts(dataset, num_prompts).prompts
    return [codec.encode([("user", prompt.turns[0])]) for prompt in chosen]


def long_context(prompt_ids: Sequence[int]) -> list[int]:
    """`CURVE_CONTEXT` tokens, the prompt again and again."""
    return (list(prompt_ids) * CURVE_CONTEXT)[:CURVE_CONTEXT]


def corpus(num_tokens: int) -> tuple[list[np.ndarray], int]:
    """Python sources of installed packages, tokenised for the embedded model once and kept.

    Args:
        num_tokens: Least length of all documents together, in tokens.

    Returns:
        The documents, each of shape [t]; and the vocabulary's size.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ensure_smollm2())
    file = cache_root() / "bench" / f"python-{num_tokens}.npy"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        ends = [[*ids, len(tokenizer)] for ids in tokenised_sources(tokenizer, num_tokens)]
        partial = file.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(ends).astype(np.uint16))
        partial.replace(file)
    tokens = np.load(file)
    cuts = np.flatnonzero(tokens == len(tokenizer))
    return [part[part != len(tokenizer)] for part in np.split(tokens, cuts)[:-1]], len(tokenizer)


def tokenised_sources(tokenizer: Any, num_tokens: int) -> Iterator[list[int]]:
    """Ids of the Python files of transformers and torch, until there are enough."""
    import torch
    import transformers

    roots = [Path(str(module.__file__)).parent for module in (transformers, torch)]
    files = [file for root in roots for file in sorted(root.rglob("*.py"))]
    for low in range(0, len(files), 64):
        texts = [file.read_text(encoding="utf-8") for file in files[low : low + 64]]
        for ids in tokenizer([text for text in texts if text], verbose=False)["input_ids"]:
            yield ids
            num_tokens -= len(ids)
            if num_tokens <= 0:
                return


def windows(documents: list[np.ndarray], num: int, rng: np.random.Generator) -> list[Query]:
    """`num` queries of `QUERY_LEN` tokens each, from random places of documents."""
    text = np.concatenate([ids for ids in documents if len(ids) > QUERY_LEN])
    starts = rng.integers(0, len(text) - QUERY_LEN, num)
    return [text[start : start + QUERY_LEN].tolist() for start in starts.tolist()]


def build_store(path: Path, documents: Any, vocab_size: int) -> None:
    """A store without facts about its origin."""
    build_token_store(path, documents, vocab_size=vocab_size, tokenizer_hash="bench")


def rotated(items: Iterable[Item], number: int) -> list[Item]:
    """The items in order, from another one on each time: none is always the first."""
    items = list(items)
    start = number % len(items)
    return items[start:] + items[:start]
