"""The top-level keys of a configuration, by who reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.run_spec import RunSpec
from primitives.fields import did_you_mean, typed_fields

SETTINGS = (
    "max_new_tokens",
    "seed",
    "repeats",
    "warmup",
    "state",
    "history",
    "on_error",
    "profile",
    "num_generate_prompts",
    "num_control_prompts",
    "num_traced_prompts",
    "allow_code_execution",
    "wandb",
    "wandb_project",
    "progress",
    "stop_early",
)
"""Keys of the configuration that the runner takes as they are."""
LAW = ("temperature", "top_k", "top_p")
GROUPS = (
    "method",
    "retriever",
    "tree_builder",
    "verifier",
    "datastore",
    "draft_model",
    "model",
    "dataset",
)


@dataclass(frozen=True, kw_only=True)
class OwnSettings:
    """Keys of the configuration that are used here.

    Attributes:
        limit: Prompts to run, at least 1; None for all.
        limit_seed: Which ones: None takes the first of each category, a number draws them.
        order_seed: None keeps the order of the dataset, a number shuffles it.
        warm_limit: Prompts of the dataset's train split that a warm retriever has seen.
        shard: `i/n` measures every n-th prompt only; None measures all.
        num_threads: CPU threads, at least 1; None for torch's choice.
        results_dir: Where run folders go.
    """

    limit: int | None
    limit_seed: int | None
    order_seed: int | None
    warm_limit: int
    shard: str | None
    num_threads: int | None
    results_dir: str

    def __post_init__(self) -> None:
        if not self.results_dir:
            raise ValueError("results_dir must name a folder, got an empty text")
        if self.warm_limit < 1:
            raise ValueError(f"warm_limit must be ≥ 1, got {self.warm_limit}")
        if self.num_threads is not None and self.num_threads < 1:
            raise ValueError(f"num_threads must be ≥ 1 or null, got {self.num_threads}")


def chosen(cls: type[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The top-level keys that a settings class has, with their types checked.

    Raises:
        FieldError: If a value has another type.
    """
    names = SETTINGS if cls is RunSpec else [field.name for field in dataclasses.fields(cls)]
    return typed_fields(cls, {name: config[name] for name in names}, "the configuration")


def check_keys(config: Mapping[str, Any]) -> None:
    """Refuses a key that nobody reads.

    Raises:
        ValueError: If there is one; names the nearest.
    """
    own = [field.name for field in dataclasses.fields(OwnSettings)]
    known = [*SETTINGS, *own, *LAW, *GROUPS]
    for key in config:
        if key not in known:
            raise ValueError(f"unknown option '{key}'{did_you_mean(key, known)}")
