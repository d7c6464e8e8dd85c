"""A small token store for retrievers that search one."""

from __future__ import annotations

import functools

import numpy as np

from primitives.structures.suffix_array import TokenStore

VOCAB_SIZE = 6


@functools.cache
def toy_documents() -> list[np.ndarray]:
    """Its documents: short ones that end in the middle of matches, and two long ones."""
    rng = np.random.default_rng(0)
    phrase = rng.integers(0, VOCAB_SIZE, 30)
    repeated = np.concatenate([phrase[: rng.integers(2, 30)] for _ in range(8)])
    short = [rng.integers(0, VOCAB_SIZE, length) for length in (1, 2, 3, 5, 8, 13)]
    return [*short, repeated, rng.integers(0, VOCAB_SIZE, 600)]


@functools.cache
def toy_token_store() -> TokenStore:
    """The store itself, in two chunks."""
    documents = toy_documents()
    return TokenStore.from_documents([documents[:-1], documents[-1:]], VOCAB_SIZE)
