"""The texts of a run's prompts, which its rows name but do not hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.datasets import Dataset, DatasetError, limit_prompts, loader_of, shuffle_prompts
from benchmarks.results import StoredRun


def prompt_turns(run: StoredRun) -> Mapping[str, tuple[str, ...]]:
    """What the user said, turn by turn, by prompt id; empty where that cannot be known any more.

    The dataset is read again as the run's configuration says, and used only if it has the content
    that the run recorded.
    """
    if run.is_imported or "dataset" not in run.config:
        return {}
    try:
        dataset = _load(run.config)
    except (DatasetError, KeyError, TypeError, ValueError):
        # Of another version, or its files are elsewhere: the page says that the text is unknown.
        return {}
    hashes = run.env.get("hashes") or {}
    if dataset.content_hash != hashes.get("dataset"):
        return {}
    return {prompt.prompt_id: prompt.turns for prompt in dataset.prompts}


def _load(config: Mapping[str, Any]) -> Dataset:
    """The dataset of a configuration; older ones have fewer options."""
    dataset = loader_of(config["dataset"]).load(config["dataset"]["split"])
    dataset = limit_prompts(dataset, config.get("limit"), config.get("limit_seed"))
    return shuffle_prompts(dataset, config.get("order_seed"))
