"""From a configuration to an opened datastore, which is built first if it is not there yet.

A store without a path lives in the cache, under a name that says what it was made from, so that
runs with the same model, data and options share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.datastore_config import (
    AnyConfig,
    BigramsConfig,
    NgramTreesConfig,
    datastore_config,
)
from benchmarks.datastore_recipe import Recipe
from benchmarks.derived_recipes import BigramsRecipe, NgramTreesRecipe
from methods.cache import cache_root
from methods.datastores.bigrams import open_bigram_store
from methods.datastores.folder import AlreadyBuilt, DatastoreError, Header
from methods.datastores.hidden_states import open_hidden_store
from methods.datastores.ngram_trees import open_ngram_tree_store
from methods.datastores.tokens import open_token_store
from methods.targets.facts import model_identity
from methods.targets.loading import LoadedModel
from primitives.interfaces import DatastoreKind

MAX_LISTED_SOURCES = 10
"""Of more, the record of a run names their number and hash only; the header lists them."""
_LEAK = "the very prompts that are measured: choose another dataset.split, datastore.split or store"

OPENERS: dict[DatastoreKind, Callable[..., tuple[Any, Header]]] = {
    "tokens": open_token_store,
    "hidden_states": open_hidden_store,
    "bigrams": open_bigram_store,
    "ngram_trees": open_ngram_tree_store,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenedStore:
    """A datastore in use.

    Attributes:
        store: What a retriever is handed.
        header: What it says about itself.
        path: Its folder.
    """

    store: Any
    header: Header
    path: Path

    @property
    def facts(self) -> dict[str, Any]:
        """For the record of a run."""
        header = self.header
        return {
            "kind": header.kind,
            "content_hash": header.content_hash,
            "num_tokens": header.num_tokens,
            "num_documents": header.num_documents,
            "num_bytes": header.num_bytes,
            "sources": _short(header.sources),
            "options": dict(header.options),
            "report": dict(header.report),
        }


def provide_datastore(
    config: Mapping[str, Any], model: LoadedModel, *, is_asked: bool = False, progress: bool = True
) -> OpenedStore:
    """Opens the datastore that a configuration describes; builds it first if it is not there.

    Args:
        config: The resolved configuration: `datastore`, `dataset`, `model`.
        model: The target model.
        is_asked: Whether the user asked for a build, and not for a run that needs the store.
        progress: Whether to show progress on stderr.

    Raises:
        DatastoreError: If it cannot be built or opened, or is for another model.
        DatasetError: If what it is made from cannot be read.
    """
    settings = datastore_config(config)
    measured = (config["dataset"]["name"], config["dataset"].get("split"))
    if settings.path is not None:
        if is_asked:
            raise DatastoreError(
                "datastore.path names a store to be searched: leave it out to build one"
            )
        opened = open_store(Path(settings.path).expanduser(), settings.kind, model)
        if any((s.get("dataset"), s.get("split")) == measured for s in opened.header.sources):
            raise DatastoreError(f"{opened.path} was made from {_LEAK}")
        return opened
    source = (config["dataset"]["name"], settings.split) if settings.reads_dataset else None
    if not is_asked and source == measured:
        raise DatastoreError(f"the datastore would be made from {_LEAK}")
    recipe = recipe_of(settings, config, model, progress)
    path = cache_root() / "datastores" / recipe.name
    if not path.exists():
        if not is_asked:
            recipe.check_size()
        with suppress(AlreadyBuilt):  # By another process, for which this one has waited.
            recipe.build(path)
    return open_store(path, settings.kind, model)


def recipe_of(
    settings: AnyConfig, config: Mapping[str, Any], model: LoadedModel, progress: bool
) -> Recipe | BigramsRecipe:
    """How the store of some settings is made."""
    if isinstance(settings, BigramsConfig):
        return BigramsRecipe(settings, config, model, progress)
    make = NgramTreesRecipe if isinstance(settings, NgramTreesConfig) else Recipe
    return make(settings, config, model, progress)


def open_store(path: Path, kind: DatastoreKind, model: LoadedModel) -> OpenedStore:
    """Opens a store for a model.

    Raises:
        DatastoreError: If it is damaged, of another kind, or for another tokenizer or model.
    """
    use: dict[str, Any] = {
        "tokenizer_hash": model.facts["tokenizer_hash"],
        "vocab_size": model.target.vocab_size,
        "model": model_identity(model.facts),
    }
    store, header = OPENERS[kind](path, **use)
    return OpenedStore(store=store, header=header, path=path)


def _short(sources: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The sources, or for many of them their number and a hash."""
    if len(sources) <= MAX_LISTED_SOURCES:
        return [dict(source) for source in sources]
    text = json.dumps([dict(source) for source in sources], sort_keys=True)
    return [{"num_sources": len(sources), "sha256": hashlib.sha256(text.encode()).hexdigest()}]
