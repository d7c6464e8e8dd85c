"""Small stores of bigrams and of n-gram trees for retrievers that search them."""

from __future__ import annotations

import functools

import numpy as np

from methods.datastores.ngram_trees import TreeSettings, ngram_trees
from primitives.structures.bigrams import BigramTable
from primitives.structures.ngram_trees import NgramTrees
from primitives.structures.suffix_array import TokenStore
from support.token_stores import VOCAB_SIZE, toy_documents


@functools.cache
def toy_bigrams() -> BigramTable:
    """Random rankings of five of six tokens."""
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.ones(VOCAB_SIZE), size=VOCAB_SIZE).astype(np.float16)
    next_ids = np.argsort(-laws, axis=1)[:, :5]
    return BigramTable(next_ids.astype(np.int32), np.take_along_axis(laws, next_ids, axis=1))


@functools.cache
def toy_ngram_trees() -> NgramTrees:
    """All n-grams of the toy token store's documents that occur twice."""
    store = TokenStore.from_documents([toy_documents()], VOCAB_SIZE)
    return ngram_trees(store, TreeSettings(max_ngram=4))
