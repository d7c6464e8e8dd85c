"""Datasets: loaders that turn files into prompts, found by name.

A loader reads a question file and answers with prompts, references and a content hash. It applies
no chat template, counts no tokens and scores no answers.

Adding a dataset is one module here (a registered `DatasetLoader`) and one file in
`configs/dataset/`.
"""

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
    "shuffle_prompts",
]

DATASETS: Registry[DatasetLoader] = Registry("dataset", DatasetLoader, "benchmarks.datasets")
