"""A run as far as it is known before its model is loaded: settings, prompts, method."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.datasets import (
    Dataset,
    DatasetError,
    Prompt,
    limit_prompts,
    loader_of,
    shuffle_prompts,
)
from benchmarks.datastore_config import datastore_config
from benchmarks.datastores import OpenedStore, provide_datastore
from benchmarks.files import explain_os_errors
from benchmarks.inputs import find_ended, inputs_digest, noted_inputs
from benchmarks.machine import peak_memory, reset_peak_memory, synchronize
from benchmarks.responder import check_references
from benchmarks.run_spec import RunSpec
from benchmarks.runner import RunResult, reopen
from benchmarks.scoring.scores import check_tasks
from benchmarks.settings import OwnSettings, check_keys, chosen
from benchmarks.shards import Shard
from benchmarks.stopping import check_order
from methods.build import (
    build_law,
    build_method,
    build_model,
    build_vanilla,
    check_draft_model,
)
from methods.decoding import Method
from methods.judge_head import attach_head
from methods.sampling import SamplingLaw
from methods.targets.base import EmbeddingModel, GeneratingModel
from methods.targets.facts import model_identity
from methods.targets.loading import LoadedModel
from methods.targets.tensor_parallel import world_size

_LOADED: dict[str, tuple[str, LoadedModel]] = {}
"""By group of the configuration: what it was loaded from, and the model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A run as far as it is known before its model is loaded.

    Attributes:
        config: The resolved configuration, with the method's label.
        settings: What the runner takes as it is.
        results_dir: Where run folders go.
        law: Temperature, top-k and top-p.
        method: What is measured, without its datastore.
        dataset: The prompts.
        warm_prompts: What a warm retriever has seen.
        shard: Which part of the prompts this job measures; None for all.
        digest: Of the run's inputs; None if they cannot be known.
    """

    config: Mapping[str, Any]
    settings: Mapping[str, Any]
    results_dir: Path
    law: SamplingLaw
    method: Method
    dataset: Dataset
    warm_prompts: tuple[Prompt, ...]
    shard: Shard | None
    digest: str | None

    def find_ended(self) -> Path | None:
        """The folder of the very run, if it has ended; None if that is not known."""
        if self.digest is None:
            return None
        return find_ended(
            self.results_dir,
            dataset=self.dataset.name,
            method=self.method.name,
            digest=self.digest,
            is_stopped_enough=self.settings["stop_early"],
        )

    def reopen(self, path: Path) -> RunResult:
        """The result of a run that has ended; see `runner.reopen`."""
        return reopen(
            path,
            self.dataset,
            allow_code_execution=self.settings["allow_code_execution"],
            progress=self.settings["progress"],
        )

    def load(self) -> RunSpec:
        """Loads the model and opens the datastore.

        Raises:
            ValueError: If they do not go together.
            OSError: If a file cannot be read.
            ModelUnavailable: If the model cannot be had as asked.
        """
        start = time.perf_counter()
        model = load_model(self.config["model"])
        load_seconds = time.perf_counter() - start
        stores: dict[str, OpenedStore] = {}
        retriever = self.method.retriever
        if retriever is not None and retriever.wanted_datastore:
            opened = provide_datastore(self.config, model, progress=self.settings["progress"])
            retriever.attach(opened.store)
            stores[retriever.wanted_datastore] = opened
        draft = self._attach_draft_model(model)
        self._attach_embeddings(model)
        head = attach_head(self.method.verifier, model_identity(model.facts))
        devices = (*model.devices, *(draft.devices if draft else ()))
        return RunSpec(
            config=self.config,
            dataset=self.dataset,
            target=model.target,
            codec=model.codec,
            method=self.method,
            vanilla=build_vanilla(self.law),
            law=self.law,
            model_name=model.name,
            results_dir=self.results_dir,
            synchronize=lambda: synchronize(devices),
            generate=model.target.generate if isinstance(model.target, GeneratingModel) else None,
            device="+".join(map(str, model.devices)),
            peak_memory=lambda: peak_memory(devices),
            reset_peak_memory=lambda: reset_peak_memory(devices),
            model_hashes=model.facts,
            head=head or {},
            draft_model={"name": draft.name, **draft.facts} if draft else {},
            datastores={kind: opened.facts for kind, opened in stores.items()},
            load_seconds=load_seconds,
            warm_prompts=self.warm_prompts,
            shard=self.shard,
            inputs=noted_inputs(self.digest, [opened.path for opened in stores.values()]),
            **self.settings,
        )

    def _attach_draft_model(self, target: LoadedModel) -> LoadedModel | None:
        """Loads the model that the retriever drafts with, if it does.

        Raises:
            ConfigError: If it cannot draft for this target.
            ModelUnavailable: If it cannot be had as asked.
        """
        retriever = self.method.retriever
        if retriever is None or not retriever.needs_draft_model:
            return None
        draft = load_model(self.config["draft_model"], "draft_model")
        check_draft_model(draft, target)
        retriever.attach_draft_model(draft.target)
        return draft

    def _attach_embeddings(self, model: LoadedModel) -> None:
        """The target's input embeddings, for a rule that compares tokens by them.

        Raises:
            ValueError: If this target does not offer it.
        """
        verifier = self.method.verifier
        if "embeddings" in verifier.needs:
            if not isinstance(model.target, EmbeddingModel):
                raise ValueError(
                    f"verifier={verifier.name} needs the target's input embeddings, which "
                    f"model={model.name} does not offer"
                )
            verifier.attach(embeddings=model.target.embeddings)


def make_plan(config: Mapping[str, Any], swapped: Sequence[str] = ()) -> Plan:
    """All that can be known and checked before the model is loaded.

    Raises:
        ValueError: If the configuration or a dataset row is wrong.
        RunFolderError: If the results folder cannot be written.
        OSError: If a file cannot be read.
    """
    check_keys(config)
    own = OwnSettings(**chosen(OwnSettings, config))
    settings = chosen(RunSpec, config)
    shard = None if own.shard is None else Shard.parse(own.shard)
    if own.num_threads is not None:
        torch.set_num_threads(own.num_threads)
    if world_size() > 1 and not config["model"].get("tp_plan"):
        raise ValueError(
            f"torchrun has started {world_size()} processes, which would all measure the same: set "
            "model.tp_plan=auto to split the model over them, or start one process"
        )
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
    if settings["stop_early"] and method.retriever is not None:
        check_order(dataset)
    warm_prompts = load_warm_prompts(config) if settings["state"] == "warm" else ()
    check_writable(Path(own.results_dir))
    wanted = None if method.retriever is None else method.retriever.wanted_datastore
    if wanted:
        datastore_config(config)  # Refuses wrong fields before the model is loaded.
    return Plan(
        config=config,
        settings=settings,
        results_dir=Path(own.results_dir),
        law=law,
        method=method,
        dataset=dataset,
        warm_prompts=warm_prompts,
        shard=shard,
        digest=inputs_digest(config, dataset, warm_prompts, wanted),
    )


def load_model(config: Mapping[str, Any], group: str = "model") -> LoadedModel:
    """The model of the group's last call if it is the same: the jobs of a sweep share one."""
    key = json.dumps(config, sort_keys=True)
    last_key, model = _LOADED.pop(group, (None, None))
    if model is None or key != last_key:
        del model  # First: two models may not fit into memory.
        model = build_model(config, group)
    _LOADED[group] = (key, model)
    return model


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
    return loader_of(config["dataset"]).load(split)
