"""What a datastore is to be made from, as configured, and the command that says so."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal

from benchmarks.datasets import DATASETS
from methods.build import MODEL_KINDS
from methods.datastores.ngram_trees import TreeSettings
from methods.datastores.tokens import MAX_CHUNK_TOKENS
from primitives.fields import typed_fields
from primitives.interfaces import DatastoreKind

MAX_NGRAM = 1000
STORED_ELSEWHERE = ("path", "batch_size")
"""Fields of the configuration that do not change what a store holds."""


@dataclass(frozen=True, kw_only=True)
class DatastoreConfig:
    """What every datastore is made from.

    Attributes:
        path: An existing store; None for one in the cache, built on first use.
        split: Which part of the dataset.
        limit: Most prompts of it, spread over the categories; None for all.
        source: `reference` takes the dataset's answers, `generated` the target model's own.
        max_new_tokens: Output budget of generated answers, in tokens, at least 1.
        batch_size: Answers that are generated at a time, at least 1.
        overlap_ngram: Words that a document and a test prompt share to count as overlapping, in
            [1, 1000].
        drop_overlapping: Leave out documents that overlap with the test split.
    """

    kind: ClassVar[DatastoreKind]
    reads_dataset: ClassVar[bool] = True

    path: str | None = None
    split: str = "train"
    limit: int | None = None
    source: Literal["reference", "generated"] = "reference"
    max_new_tokens: int = 128
    batch_size: int = 16
    overlap_ngram: int = 13
    drop_overlapping: bool = False

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "batch_size", "overlap_ngram"):
            if getattr(self, name) < 1:
                raise ValueError(f"datastore.{name} must be ≥ 1, got {getattr(self, name)}")
        if self.overlap_ngram > MAX_NGRAM:
            raise ValueError(
                f"datastore.overlap_ngram must be ≤ {MAX_NGRAM}, got {self.overlap_ngram}"
            )
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"datastore.limit must be ≥ 1 or null, got {self.limit}")
        if self.path == "":
            raise ValueError("datastore.path must name a folder or be null, got an empty text")

    @property
    def content(self) -> dict[str, Any]:
        """The settings that decide what the store holds, by name."""
        return {name: v for name, v in vars(self).items() if name not in STORED_ELSEWHERE}


@dataclass(frozen=True, kw_only=True)
class TokensConfig(DatastoreConfig):
    """A token store with a suffix array.

    Attributes:
        chunk_tokens: Tokens that are sorted at a time, in [2, 2^29]: a build needs memory for one
            chunk.
    """

    kind: ClassVar[DatastoreKind] = "tokens"

    chunk_tokens: int = 2**27

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.chunk_tokens <= MAX_CHUNK_TOKENS:
            raise ValueError(
                f"datastore.chunk_tokens must be in [2, {MAX_CHUNK_TOKENS}], "
                f"got {self.chunk_tokens}"
            )


@dataclass(frozen=True, kw_only=True)
class HiddenStatesConfig(DatastoreConfig):
    """A hidden-state store.

    Attributes:
        positions: Which positions get a key: those whose next token is of an `answer`, or `all`.
        dim: Dimensions of a key after PCA, at least 1.
        index: `flat` searches exactly, `ivf_pq` approximately; `auto` decides by size.
        rerank: Score the neighbours that an approximate index finds with their exact keys.
    """

    kind = "hidden_states"

    positions: Literal["answer", "all"] = "answer"
    dim: int = 64
    index: Literal["auto", "flat", "ivf_pq"] = "auto"
    rerank: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim < 1:
            raise ValueError(f"datastore.dim must be ≥ 1, got {self.dim}")


@dataclass(frozen=True, kw_only=True)
class BigramsConfig(DatastoreConfig):
    """A store of the target model's bigrams; the settings of a corpus are there, but not read.

    Attributes:
        num_next: Most probable next tokens that are kept per token, at least 1.
        prefix_text: What each token is read behind; the empty text for nothing.
        batch_size: Tokens that are forwarded at a time, at least 1.
    """

    kind = "bigrams"
    reads_dataset = False

    num_next: int = 16
    prefix_text: str = "\n"
    batch_size: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_next < 1:
            raise ValueError(f"datastore.num_next must be ≥ 1, got {self.num_next}")

    @property
    def content(self) -> dict[str, Any]:
        """The settings that decide what the store holds, by name."""
        return {"num_next": self.num_next, "prefix_text": self.prefix_text}


@dataclass(frozen=True, kw_only=True)
class NgramTreesConfig(TreeSettings, TokensConfig):
    """N-grams and their trees, made from the token store that the other settings describe."""

    kind = "ngram_trees"

    def __post_init__(self) -> None:
        TokensConfig.__post_init__(self)
        TreeSettings.__post_init__(self)

    @property
    def corpus(self) -> TokensConfig:
        """The token store that it is made from."""
        return TokensConfig(
            **{field.name: getattr(self, field.name) for field in fields(TokensConfig)}
        )


AnyConfig = TokensConfig | HiddenStatesConfig | BigramsConfig | NgramTreesConfig
CONFIGS: dict[str, type[AnyConfig]] = {
    "tokens": TokensConfig,
    "hidden_states": HiddenStatesConfig,
    "bigrams": BigramsConfig,
    "ngram_trees": NgramTreesConfig,
}


def datastore_config(config: Mapping[str, Any]) -> AnyConfig:
    """The typed `datastore` part of a configuration.

    Raises:
        ValueError: If there is no such kind, or a field is wrong.
    """
    values = {key: value for key, value in config["datastore"].items() if key != "kind"}
    kind = config["datastore"]["kind"]
    if kind not in CONFIGS:
        raise ValueError(f"datastore.kind must be one of {sorted(CONFIGS)}, got {kind!r}")
    return CONFIGS[kind](**typed_fields(CONFIGS[kind], values, "datastore"))


def corpus_config(config: Mapping[str, Any], settings: NgramTreesConfig) -> dict[str, Any]:
    """The configuration of the token store that n-gram trees are made from."""
    return {**config, "datastore": {"kind": TokensConfig.kind, **vars(settings.corpus)}}


def build_command(config: Mapping[str, Any]) -> str:
    """The command that builds the store of a configuration."""
    settings = datastore_config(config)
    model, dataset = dict(config["model"]), dict(config["dataset"])
    choice = "hf" if model.pop("kind") == "huggingface" else "toy"
    model.pop("node_budget", None)
    loader = DATASETS.get(dataset.pop("name"))
    dataset.pop("split", None)
    words = [f"datastore={settings.kind}", f"model={choice}"]
    groups: list[tuple[str, Any, Mapping[str, Any]]] = [
        ("model.", MODEL_KINDS[config["model"]["kind"]], model)
    ]
    if settings.reads_dataset:
        words.append(f"dataset={loader.name}")
        groups.append(("dataset.", loader, dataset))
    for group, cls, values in (*groups, ("", type(settings), settings.content)):
        defaults = {field.name: field.default for field in fields(cls)}
        words += [
            # Keys that a file does not list can be added only.
            f"{'+' if isinstance(value, Mapping) else ''}{group}{name}={hydra_value(value)}"
            for name, value in values.items()
            if value != defaults[name] and not (value == {} and defaults[name] is MISSING)
        ]
    return shlex.join(["python", "scripts/build_datastore.py", *words])


def hydra_value(value: Any) -> str:
    """A value as Hydra's command line takes it."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{hydra_value(item)}" for key, item in value.items()) + "}"
    if not isinstance(value, str):
        return json.dumps(value)
    if re.fullmatch(r"[A-Za-z_/.][\w/.@+-]*", value) and value.lower() not in (
        "null",
        "true",
        "false",
    ):
        return value
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"
