"""One run from a plain configuration: build, measure, print; shared by `run.py` and scripts."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.datasets import DATASETS, Dataset, limit_prompts
from benchmarks.files import RunFolderError
from benchmarks.run_spec import RunSpec
from benchmarks.runner import run
from benchmarks.table import print_results
from methods.build import build_law, build_method, build_model, build_vanilla
from methods.targets.errors import ModelUnavailable
from primitives.fields import typed_fields

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
    "progress",
)
"""Keys of the configuration that the runner takes as they are."""


def measure(config: Mapping[str, Any], swapped: Sequence[str] = ()) -> tuple[int, str | None]:
    """Runs what a configuration says and prints the results; the run folder's path last.

    Args:
        config: The resolved configuration.
        swapped: Primitives that replace the method's own; they become part of its label.

    Returns:
        Exit code (0 done, 1 the run failed, 2 it could not be started) and what to tell the user.
    """
    try:
        spec = build_spec(config, swapped)
    except (ValueError, OSError, ModelUnavailable) as error:
        return 2, str(error)
    try:
        result = run(spec)
    except RunFolderError as error:
        return 2, str(error)
    except KeyboardInterrupt:
        return 130, f"interrupted; the same command continues {spec.path}"
    print_results(result.summary)
    if result.was_finished:
        sys.stdout.write("This run had finished before; nothing was measured again.\n")
    sys.stdout.write(f"{result.path}\n")
    return (1, result.failure) if result.failure else (0, None)


def build_spec(config: Mapping[str, Any], swapped: Sequence[str] = ()) -> RunSpec:
    """Everything a run needs, with the cheap checks before the model is loaded.

    Raises:
        ValueError: If the configuration or a dataset row is wrong.
        OSError: If a file cannot be read.
        ModelUnavailable: If the model cannot be had as asked.
    """
    if config["num_threads"] is not None:
        torch.set_num_threads(config["num_threads"])
    settings = typed_fields(RunSpec, {name: config[name] for name in SETTINGS}, "the configuration")
    law = build_law(config)
    label = "+".join([config["method"]["name"], *swapped])
    config = {**config, "method": {**config["method"], "name": label}}
    method = build_method(config, law)
    dataset = load_dataset(config)
    start = time.perf_counter()
    model = build_model(config["model"])
    return RunSpec(
        config=config,
        dataset=dataset,
        target=model.target,
        codec=model.codec,
        method=method,
        vanilla=build_vanilla(law),
        law=law,
        model_name=model.name,
        results_dir=Path(config["results_dir"]),
        synchronize=lambda: synchronize(model.device),
        generate=getattr(model.target, "generate", None),
        device=str(model.device),
        peak_memory=lambda: peak_memory(model.device),
        model_hashes=model.facts,
        load_seconds=time.perf_counter() - start,
        **settings,
    )


def load_dataset(config: Mapping[str, Any]) -> Dataset:
    """The prompts that a configuration asks for."""
    fields = {k: v for k, v in config["dataset"].items() if k not in ("name", "split")}
    loader = DATASETS.create(config["dataset"]["name"], **fields)
    return limit_prompts(loader.load(config["dataset"]["split"]), config["limit"], None)


def synchronize(device: torch.device) -> None:
    """Waits for the device; nothing to do on CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of the GPU's allocator, or of the process on CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
