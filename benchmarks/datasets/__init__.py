"""Datasets: loaders that turn files into prompts, found by name.

A loader reads a question file and answers with prompts, references and a content hash. It applies
no chat template, counts no tokens and scores no answers.

Adding a dataset is one module here (a registered `DatasetLoader`) and one file in
`configs/dataset/`.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.datasets.base import (
    Dataset,
    DatasetLoader,
    Prompt,
    Task,
    hash_prompts,
    limit_prompts,
    shuffle_prompts,
)
from benchmarks.datasets.reader import DatasetError
from primitives.registry import Registry

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetError",
    "DatasetLoader",
    "Prompt",
    "Task",
    "hash_prompts",
    "limit_prompts",
    "loader_of",
    "shuffle_prompts",
]

DATASETS: Registry[DatasetLoader] = Registry("dataset", DatasetLoader, "benchmarks.datasets")


def loader_of(settings: Mapping[str, Any]) -> DatasetLoader:
    """The loader that a configuration's group `dataset` describes.

    Args:
        settings: Its name and fields; `split`, which is chosen when it loads, is no field.

    Raises:
        ValueError: If the name or a field does not exist, or the loader refuses a value.
    """
    fields = {key: value for key, value in settings.items() if key not in ("name", "split")}
    return DATASETS.create(settings["name"], **fields)
