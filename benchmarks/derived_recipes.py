"""How stores are made that come from something else than documents: a model, or another store."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.datastore_config import (
    BigramsConfig,
    NgramTreesConfig,
    build_command,
    corpus_config,
)
from benchmarks.datastore_recipe import Recipe
from benchmarks.progress import counting
from methods.cache import cache_root
from methods.datastores.bigrams import build_bigram_store
from methods.datastores.folder import FORMAT_VERSION, AlreadyBuilt, DatastoreError
from methods.datastores.ngram_trees import build_ngram_tree_store
from methods.datastores.tokens import open_token_store
from methods.targets.facts import model_identity
from methods.targets.loading import LoadedModel

logger = logging.getLogger(__name__)

MAX_UNASKED_OPERATIONS = 10**14
"""On a CPU, a table that takes more of them is built by its own command only: some ten minutes."""
NO_DOCUMENTS = {"num_documents": 0, "num_overlapping": 0, "num_dropped": 0}
"""The report of overlaps of a store that holds no document at all."""


class NgramTreesRecipe(Recipe):
    """From a token store, which is built first if it is not there."""

    def build(self, path: Path) -> None:
        """Documents, their suffix array, then the trees."""
        assert isinstance(self.settings, NgramTreesConfig)
        config = corpus_config(self.config, self.settings)
        corpus = Recipe(self.settings.corpus, config, self.model, self.has_progress)
        tokens_path = cache_root() / "datastores" / corpus.name
        if not tokens_path.exists():
            with suppress(AlreadyBuilt):
                corpus.build(tokens_path)
        store, header = open_token_store(tokens_path)
        logger.info(f"building the datastore {path.name} from {tokens_path.name}")
        with counting("bytes", self.settings.max_bytes, self.has_progress) as advance:
            build_ngram_tree_store(
                path,
                store,
                self.settings,
                corpus=header,
                command=self.command,
                options=self.settings.content,
                progress=advance,
            )


class BigramsRecipe:
    """From the target model alone."""

    def __init__(
        self,
        settings: BigramsConfig,
        config: Mapping[str, Any],
        model: LoadedModel,
        progress: bool,
    ) -> None:
        self.settings, self.model, self.has_progress = settings, model, progress
        self.command = build_command(config)

    @property
    def name(self) -> str:
        """Readable, and different for stores of different content."""
        content = {
            "kind": self.settings.kind,
            "format": FORMAT_VERSION,
            "options": self.settings.content,
            "tokenizer": self.model.facts["tokenizer_hash"],
            "vocab_size": self.model.target.vocab_size,
            "model": model_identity(self.model.facts),
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
        return f"{self.model.name}-{self.settings.kind}-{digest}".replace("/", "--")

    def check_size(self) -> None:
        """Refuses to begin something long that nobody asked for.

        Raises:
            DatastoreError: If the model is large and on a CPU.
        """
        is_on_cpu = all(device.type == "cpu" for device in self.model.devices)
        num_parameters = self.model.facts.get("num_parameters", 0)
        operations = 2 * num_parameters * self.model.target.vocab_size
        if is_on_cpu and operations > MAX_UNASKED_OPERATIONS:
            raise DatastoreError(
                f"the datastore {self.name} is not built yet, and takes a CPU long "
                f"({operations:.0e} operations): build it with\n  {self.command}"
            )

    def build(self, path: Path) -> None:
        """One forward of every token."""
        vocab_size = self.model.target.vocab_size
        logger.info(f"building the datastore {path.name}: {vocab_size:,} tokens, one by one")
        with counting("tokens", vocab_size, self.has_progress) as advance:
            build_bigram_store(
                path,
                self.model.target,
                tokenizer_hash=self.model.facts["tokenizer_hash"],
                model=model_identity(self.model.facts),
                num_next=self.settings.num_next,
                batch_size=self.settings.batch_size,
                prefix_ids=self.model.codec.encode_text(self.settings.prefix_text),
                options=self.settings.content,
                command=self.command,
                report={"overlap": NO_DOCUMENTS},
                progress=advance,
            )
