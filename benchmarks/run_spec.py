"""What a run is told: plain objects and numbers, no configuration library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.certificate import tier_of
from benchmarks.datasets.base import Dataset, Prompt, hash_prompts
from benchmarks.law_test import MIN_REPEATS
from benchmarks.provenance import code_version, run_id
from benchmarks.run_files import run_path
from benchmarks.shards import Shard
from benchmarks.tracking import DEFAULT_PROJECT, MODES
from methods.decoding import Method
from methods.sampling import SamplingLaw
from methods.targets.base import TargetModel, TextCodec
from methods.targets.facts import model_identity

GenerateCall = Callable[[Sequence[int], int], Sequence[int]]
"""Prompt ids and output budget -> the new ids, of the library's own greedy decoding."""


def _do_nothing() -> None:
    """A device that needs no waiting for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunSpec:
    """One method on one target model and one dataset, beside its vanilla baseline.

    Attributes:
        config: Resolved configuration, as plain JSON values; recorded, and part of the run id.
        dataset: The prompts.
        target: The target model.
        codec: Conversations to ids, ids to text.
        method: What is measured.
        vanilla: The same loop with no retriever.
        law: Temperature, top-k and top-p of both.
        model_name: What results are filed under.
        max_new_tokens: Output budget per turn, in tokens, at least 1.
        results_dir: Where the run folder goes.
        seed: Seed of all random choices.
        repeats: Passes over the dataset, at least 1.
        warmup: Untimed prompts per arm before the first pass, at least 0; none is of the dataset.
        state: `reset` empties the retriever before each prompt; `carry` before each pass only;
            `warm` as `carry`, but each pass begins with untimed answers to `warm_prompts`.
        warm_prompts: What a warm retriever has seen; none is of the dataset.
        history: What a later turn sees as the assistant's earlier answers: the arm's `own`, or
            the dataset's `reference`.
        on_error: `record` notes a failed prompt and goes on; `stop` raises.
        profile: Waits for the device at the end of each phase: exact phases, slower runs.
        synchronize: Waits for the device.
        generate: Timed beside, on the first prompts, if decoding is greedy; None for not at all.
        num_generate_prompts: How many prompts that is.
        num_control_prompts: Prompts that vanilla answers a second time, as a control; None for all
            where rounding can differ (16-bit, or no CPU) or laws are tested, else for none.
        num_traced_prompts: Prompts whose draft trees and token texts are recorded.
        allow_code_execution: Whether scorers may run what the models wrote.
        wandb: Whether Weights & Biases is told, and how.
        wandb_project: Under which name.
        device: Where the target model lives, e.g. `cpu` or `cuda:0`.
        peak_memory: Peak memory since the reset in bytes, None if unknown.
        reset_peak_memory: Forgets it; called before the warm-up.
        model_hashes: What identifies weights and tokenizer, as plain JSON values; recorded.
        draft_model: The same of the model that drafts, with its name; empty without one.
        head: Facts about the judge's trained head, with its `content_hash`; empty without one.
        datastores: Facts about each datastore by kind, with its `content_hash`.
        load_seconds: How long loading the target model took; None if unknown.
        progress: Whether to show progress on stderr.
        shard: Which part of the prompts this job measures; None for all.
        stop_early: Whether to end once the run is surely slower than the best finished one.
        inputs: By what the finished run is found before a model is loaded (`benchmarks.inputs`);
            empty if it cannot be.
    """

    config: Mapping[str, Any]
    dataset: Dataset
    target: TargetModel
    codec: TextCodec
    method: Method
    vanilla: Method
    law: SamplingLaw
    model_name: str
    max_new_tokens: int
    results_dir: Path
    seed: int = 0
    repeats: int = 1
    warmup: int = 1
    state: Literal["reset", "carry", "warm"] = "reset"
    warm_prompts: tuple[Prompt, ...] = ()
    history: Literal["own", "reference"] = "own"
    on_error: Literal["record", "stop"] = "record"
    profile: bool = False
    synchronize: Callable[[], None] = _do_nothing
    generate: GenerateCall | None = None
    num_generate_prompts: int = 0
    num_control_prompts: int | None = 0
    num_traced_prompts: int = 0
    allow_code_execution: bool = False
    wandb: Literal["online", "offline", "off"] = "off"
    wandb_project: str = DEFAULT_PROJECT
    device: str = "cpu"
    peak_memory: Callable[[], int | None] = lambda: None
    reset_peak_memory: Callable[[], None] = _do_nothing
    model_hashes: Mapping[str, Any] = field(default_factory=dict)
    draft_model: Mapping[str, Any] = field(default_factory=dict)
    head: Mapping[str, Any] = field(default_factory=dict)
    datastores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    load_seconds: float | None = None
    progress: bool = True
    shard: Shard | None = None
    stop_early: bool = False
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (
            ("max_new_tokens", 1), ("repeats", 1), ("warmup", 0), ("num_generate_prompts", 0),
            ("num_traced_prompts", 0), ("num_control_prompts", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be ≥ {least}, got {value}")
        for name, words in (
            ("state", ("reset", "carry", "warm")),
            ("history", ("own", "reference")),
            ("on_error", ("record", "stop")),
            ("wandb", MODES),
        ):
            if getattr(self, name) not in words:
                raise ValueError(
                    f"{name} must be {' or '.join(words)}, got {getattr(self, name)!r}"
                )
        if self.state == "warm" and not self.warm_prompts:
            raise ValueError("state=warm needs prompts to warm up with, got none")
        if self.shard is not None and self.state != "reset":
            raise ValueError(
                f"shard={self.shard.index}/{self.shard.num_shards} needs state=reset: what a "
                f"retriever learns from earlier prompts (state={self.state}) is in another job"
            )
        if self.shard is not None and self.stop_early:
            raise ValueError(
                f"stop_early=true needs all prompts in one job, got "
                f"shard={self.shard.index}/{self.shard.num_shards}: leave one of them out"
            )
        if self.vanilla.retriever is not None:
            raise ValueError("vanilla must have no retriever: it is the same loop without drafts")

    @property
    def is_lossless(self) -> bool:
        """Whether the verifier promises the target's own output, at this temperature."""
        verifier = self.method.verifier
        return verifier.is_lossless_greedy if self.law.is_greedy else verifier.is_lossless_sampling

    @property
    def has_exact_phases(self) -> bool:
        """Whether the time of each phase is its own, not that of work still queued."""
        return self.profile or self.device == "cpu"

    @property
    def controlled(self) -> int:
        """`num_control_prompts`, as a number."""
        if self.num_control_prompts is not None:
            return self.num_control_prompts
        if not self.law.is_greedy:
            return len(self.dataset.prompts) if self.repeats >= MIN_REPEATS else 0
        facts = {"is_greedy": True, "device": self.device, "dtype": self.model_hashes.get("dtype")}
        is_exact = tier_of(facts) == "exact"
        return 0 if is_exact else len(self.dataset.prompts)

    @property
    def run_id(self) -> str:
        """Equal for runs that must give the same results."""
        settings = {
            "model": self.model_name,
            "method": self.method.name,
            "law": vars(self.law),
            "max_new_tokens": self.max_new_tokens,
            "seed": self.seed,
            "repeats": self.repeats,
            "warmup": self.warmup,
            "state": self.state,
            "history": self.history,
            "profile": self.profile,
            "num_generate_prompts": self.num_generate_prompts if self.generate else 0,
            "num_control_prompts": self.controlled,
            "num_traced_prompts": self.num_traced_prompts,
            "warm": hash_prompts(self.warm_prompts) if self.state == "warm" else None,
            "weights": model_identity(self.model_hashes),
            "tokenizer": self.model_hashes.get("tokenizer_hash"),
            "head": self.head.get("content_hash"),
            "draft_weights": model_identity(self.draft_model) if self.draft_model else None,
        }
        return run_id(
            self.config,
            settings=settings,
            dataset_hash=self.dataset.content_hash,
            datastore_hashes={
                kind: facts["content_hash"] for kind, facts in self.datastores.items()
            },
            code=code_version(),
        )

    @property
    def indices(self) -> range:
        """The prompts that this job measures."""
        num_prompts = len(self.dataset.prompts)
        return range(num_prompts) if self.shard is None else self.shard.indices(num_prompts)

    @property
    def path(self) -> Path:
        """The run folder; shards lie inside it."""
        return run_path(
            self.results_dir,
            model=self.model_name,
            dataset=self.dataset.name,
            method=self.method.name,
            run_id=self.run_id,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What metrics and readers must know about the run as a whole."""
        return {
            "run_id": self.run_id,
            "model": self.model_name,
            "dataset": self.dataset.name,
            "split": self.dataset.split,
            "dataset_hash": self.dataset.content_hash,
            "method": self.method.name,
            "num_prompts": len(self.dataset.prompts),
            "num_skipped_rows": self.dataset.num_skipped,
            "repeats": self.repeats,
            "is_greedy": self.law.is_greedy,
            "is_lossless": self.is_lossless,
            "law": vars(self.law),
            "node_budget": self.method.node_budget if self.method.retriever else 0,
            "is_stateful": bool(self.method.retriever and self.method.retriever.is_cross_request),
            "has_exact_phases": self.has_exact_phases,
            "state": self.state,
            "order_seed": self.config.get("order_seed"),
            "history": self.history,
            "max_new_tokens": self.max_new_tokens,
            "device": self.device,
            "dtype": self.model_hashes.get("dtype"),
            "linear_kernels": self.model_hashes.get("linear_kernels"),
            "draft_model": dict(self.draft_model) or None,
            "head": dict(self.head) or None,
            "datastores": {kind: dict(facts) for kind, facts in self.datastores.items()},
        }
