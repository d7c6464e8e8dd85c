"""One run from a plain configuration: build, measure, print; shared by `run.py` and scripts."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.datasets import (
    DATASETS,
    Dataset,
    DatasetError,
    Prompt,
    limit_prompts,
    shuffle_prompts,
)
from benchmarks.datastore_config import datastore_config
from benchmarks.datastores import provide_datastore
from benchmarks.files import RunFolderError, explain_os_errors
from benchmarks.machine import peak_memory, reset_peak_memory, synchronize
from benchmarks.responder import check_references
from benchmarks.run_spec import RunSpec
from benchmarks.runner import run
from benchmarks.scoring.scores import check_tasks
from benchmarks.shards import Shard
from benchmarks.table import print_results
from methods.build import build_law, build_method, build_model, build_vanilla
from methods.targets.errors import ModelUnavailable
from methods.targets.loading import LoadedModel
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
)
"""Keys of the configuration that the runner takes as they are."""
LAW = ("temperature", "top_k", "top_p")
_LOADED: dict[str, LoadedModel] = {}
GROUPS = ("method", "retriever", "tree_builder", "verifier", "datastore", "model", "dataset")


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


def start_logging() -> None:
    """This project's messages on stderr; of libraries, warnings only."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr, force=True)
    for package in ("benchmarks", "methods"):
        logging.getLogger(package).setLevel(logging.INFO)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one command ended.

    Attributes:
        code: 0 done, 1 the run failed, 2 it could not be started, 130 interrupted.
        message: What to tell the user, if anything.
        summary: What `summary.json` holds, if there are results.
        path: The run folder, if there are results.
    """

    code: int
    message: str | None = None
    summary: Mapping[str, Any] | None = None
    path: Path | None = None


def measure(
    config: Mapping[str, Any],
    swapped: Sequence[str] = (),
    on_start: Callable[[Path], None] = lambda _: None,
) -> Outcome:
    """Runs what a configuration says and prints the results; the run folder's path last.

    Args:
        config: The resolved configuration.
        swapped: Primitives that replace the method's own; they become part of its label.
        on_start: Told the run folder before the first prompt.
    """
    try:
        spec = build_spec(config, swapped)
    except (ValueError, OSError, ModelUnavailable, RunFolderError) as error:
        return Outcome(code=2, message=str(error))
    try:
        on_start(spec.path)
        result = run(spec)
    except RunFolderError as error:
        return Outcome(code=2, message=str(error))
    except ValueError as error:
        if spec.on_error != "stop":
            raise
        reason = f"stopped at the first prompt that failed (on_error=stop): {error}"
        return Outcome(code=1, message=reason)
    except KeyboardInterrupt:
        return Outcome(code=130, message=f"interrupted; the same command continues {spec.path}")
    print_results(result.summary)
    if result.was_finished:
        sys.stdout.write("This run had finished before; nothing was measured again.\n")
    sys.stdout.write(f"{result.path}\n")
    code = 1 if result.failure else 0
    return Outcome(code=code, message=result.failure, summary=result.summary, path=result.path)


def build_spec(config: Mapping[str, Any], swapped: Sequence[str] = ()) -> RunSpec:
    """Everything a run needs, with the cheap checks before the model is loaded.

    Raises:
        ValueError: If the configuration or a dataset row is wrong.
        RunFolderError: If the results folder cannot be written.
        OSError: If a file cannot be read.
        ModelUnavailable: If the model cannot be had as asked.
    """
    _check_keys(config)
    own = OwnSettings(**_chosen(OwnSettings, config))
    settings = _chosen(RunSpec, config)
    shard = None if own.shard is None else Shard.parse(own.shard)
    if own.num_threads is not None:
        torch.set_num_threads(own.num_threads)
    law = build_law(config)
    if swapped:
        label = "+".join([str(config["method"]["name"]), *swapped])
        config = {**config, "method": {**config["method"], "name": label}}
    method = build_method(config, law)
    dataset = load_dataset(config)
    check_tasks(dataset)
    if settings["history"] == "reference":
        for prompt in dataset.prompts:
            check_references(prompt)
    warm_prompts = load_warm_prompts(config) if settings["state"] == "warm" else ()
    check_writable(Path(own.results_dir))
    wanted = method.retriever and method.retriever.wanted_datastore
    if wanted:
        datastore_config(config)  # Refuses wrong fields before the model is loaded.
    start = time.perf_counter()
    model = load_model(config["model"])
    load_seconds = time.perf_counter() - start
    datastores: dict[str, dict[str, Any]] = {}
    if method.retriever is not None and wanted:
        opened = provide_datastore(config, model, progress=settings["progress"])
        method.retriever.attach(opened.store)
        datastores[wanted] = opened.facts
    return RunSpec(
        config=config,
        dataset=dataset,
        target=model.target,
        codec=model.codec,
        method=method,
        vanilla=build_vanilla(law),
        law=law,
        model_name=model.name,
        results_dir=Path(own.results_dir),
        synchronize=lambda: synchronize(model.devices),
        generate=getattr(model.target, "generate", None),
        device="+".join(map(str, model.devices)),
        peak_memory=lambda: peak_memory(model.devices),
        reset_peak_memory=lambda: reset_peak_memory(model.devices),
        model_hashes=model.facts,
        datastores=datastores,
        load_seconds=load_seconds,
        warm_prompts=warm_prompts,
        shard=shard,
        **settings,
    )


def load_model(config: Mapping[str, Any]) -> LoadedModel:
    """The model of the last call if it is the same: the jobs of a sweep share one."""
    key = json.dumps(config, sort_keys=True)
    if key not in _LOADED:
        _LOADED.clear()  # First: two models may not fit into memory.
        _LOADED[key] = build_model(config)
    return _LOADED[key]


def _chosen(cls: type[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The top-level keys that a settings class has, with their types checked."""
    names = SETTINGS if cls is RunSpec else [field.name for field in dataclasses.fields(cls)]
    return typed_fields(cls, {name: config[name] for name in names}, "the configuration")


def _check_keys(config: Mapping[str, Any]) -> None:
    own = [field.name for field in dataclasses.fields(OwnSettings)]
    known = [*SETTINGS, *own, *LAW, *GROUPS]
    for key in config:
        if key not in known:
            raise ValueError(f"unknown option '{key}'{did_you_mean(key, known)}")


def check_writable(results_dir: Path) -> None:
    """Finds out before a model is loaded whether results can be written.

    Raises:
        RunFolderError: If they cannot.
    """
    with explain_os_errors(results_dir):
        results_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results_dir):
            pass


def load_dataset(config: Mapping[str, Any]) -> Dataset:
    """The prompts that a configuration asks for."""
    dataset = _load_split(config, config["dataset"]["split"])
    dataset = limit_prompts(dataset, config["limit"], config["limit_seed"])
    return shuffle_prompts(dataset, config["order_seed"])


def load_warm_prompts(config: Mapping[str, Any]) -> tuple[Prompt, ...]:
    """What a warm retriever has seen: prompts of the train split."""
    try:
        train = _load_split(config, "train")
    except DatasetError as error:
        raise ValueError(
            "state=warm answers prompts of the dataset's train split first, and there is none: "
            f"take reset or carry ({error})"
        ) from error
    return limit_prompts(train, config["warm_limit"], config["limit_seed"]).prompts


def _load_split(config: Mapping[str, Any], split: str) -> Dataset:
    fields = {k: v for k, v in config["dataset"].items() if k not in ("name", "split")}
    return DATASETS.create(config["dataset"]["name"], **fields).load(split)
