"""What a leaderboard knows of one run: figures read from its summary, none computed but sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contamination import num_overlapping
from benchmarks.leaderboard.tasks import TaskFigure
from benchmarks.provenance import IGNORED_CONFIG, without_keys
from benchmarks.results import StoredRun
from benchmarks.statistics import Interval

VANILLA = "vanilla"
MAX_DIFFERENCES = 3
"""Runs of one method are told apart by so many options; if there are more, by their ids."""

Metric = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a table.

    Attributes:
        label: The method, with what sets it apart from its namesakes.
        tasks: Speedup per task column.
        run: The run; None for the baseline, which is 1 by definition.
    """

    label: str
    tasks: Mapping[str, TaskFigure] = field(default_factory=dict)
    run: StoredRun | None = None

    @property
    def is_baseline(self) -> bool:
        """Whether this is vanilla decoding, which all others are divided by."""
        return self.run is None

    @property
    def is_relaxed(self) -> bool:
        """Whether the output may differ from the target model's."""
        return self.run is not None and not self.run.facts["is_lossless"]

    @property
    def is_broken(self) -> bool:
        """Whether it promises the target's output and was found to change it."""
        certificate = self.certificate
        return not self.is_relaxed and certificate.get("status") == "failed"

    @property
    def has_failures(self) -> bool:
        """Whether some prompts were not measured, so that it ran on other prompts than most."""
        if self.run is None:
            return False
        summary = self.run.summary
        is_partial = summary["num_measured"] < summary["num_prompts"] or self.is_stopped
        return bool(summary["num_failed"] or is_partial)

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped early, since another run was surely faster."""
        return self.run is not None and self.run.is_stopped

    @property
    def certificate(self) -> Mapping[str, Any]:
        """`tier`, `status` and `badge`; empty where none was issued."""
        return {} if self.run is None else self.run.summary.get("certificate") or {}

    @property
    def overall(self) -> float | None:
        """The primary speedup over all prompts."""
        return 1.0 if self.run is None else self.value(self.run.summary["primary_speedup"])

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of `overall`."""
        if self.run is None:
            return None
        interval = self.metric(self.run.summary["primary_speedup"]).get("interval")
        return None if interval is None else (interval[0], interval[1])

    @property
    def tau(self) -> float | None:
        """Output tokens per decoding step."""
        return 1.0 if self.run is None else self.value("tau")

    @property
    def store_overlaps(self) -> list[int | None]:
        """Per datastore, documents that overlap with test data; None if nobody compared them."""
        stores = {} if self.run is None else self.run.facts.get("datastores") or {}
        return [num_overlapping(store) for store in stores.values()]

    @property
    def store_bytes(self) -> int | None:
        """Size of all datastores; None for a method without one."""
        stores = {} if self.run is None else self.run.facts.get("datastores") or {}
        return sum(store["num_bytes"] for store in stores.values()) if stores else None

    @property
    def node_budget(self) -> int | None:
        """Draft nodes that a step may verify at most, if the configuration says so."""
        method = {} if self.run is None else self.run.config.get("method") or {}
        budget: int | None = method.get("node_budget")
        return budget

    @property
    def commit(self) -> str:
        """Short commit with a star for uncommitted changes; empty if not known."""
        sessions = [] if self.run is None else self.run.env.get("sessions") or []
        git = (sessions[-1].get("git") or {}) if sessions else {}
        commit = str(git.get("commit") or "")[:7]
        return commit + ("*" if commit and git.get("is_dirty") else "")

    @property
    def definition_ids(self) -> tuple[str, ...]:
        """How tau and the speedup are counted."""
        if self.run is None:
            return ()
        names = ("tau", self.run.summary["primary_speedup"])
        return tuple(str(self.metric(n)["definition"]) for n in names if n in self.metrics)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """All metrics of the run."""
        found: Mapping[str, Metric] = {} if self.run is None else self.run.summary["metrics"]
        return found

    def metric(self, name: str) -> Metric:
        """A metric; empty if the run has none of this name."""
        return self.metrics.get(name) or {}

    def value(self, name: str) -> float | None:
        """The value of a metric; None if it was not measured or is not defined."""
        value: float | None = self.metric(name).get("value")
        return value


def entries_of(figures: Sequence[tuple[StoredRun, Mapping[str, TaskFigure]]]) -> list[Entry]:
    """One entry per run and its speedups by task, labelled so that no two look alike."""
    labels = labels_of([run for run, _ in figures])
    return [
        Entry(label=label, tasks=tasks, run=run)
        for label, (run, tasks) in zip(labels, figures, strict=True)
    ]


def labels_of(runs: Sequence[StoredRun]) -> list[str]:
    """Names of methods; namesakes with the options in which they differ, or with their run ids."""
    names = [str(run.facts["method"]) for run in runs]
    return [
        f"{_own_name(name)} ({_difference(run, _namesakes(runs, name))})"
        if names.count(name) > 1
        else _own_name(name)
        for name, run in zip(names, runs, strict=True)
    ]


def _own_name(method: str) -> str:
    # A run of vanilla against itself is a control; the line `vanilla` is the baseline.
    return "vanilla again" if method == VANILLA else method


def _namesakes(runs: Sequence[StoredRun], name: str) -> list[StoredRun]:
    return [run for run in runs if run.facts["method"] == name]


def _difference(run: StoredRun, namesakes: Sequence[StoredRun]) -> str:
    """Options that not all namesakes share, if few and telling; else the run id."""
    options = [_flat(without_keys(other.config, IGNORED_CONFIG)) for other in namesakes]
    names = sorted(set().union(*options))
    varying = [n for n in names if len({repr(o.get(n)) for o in options}) > 1]
    texts = ["|".join(repr(o.get(name)) for name in varying) for o in options]
    if len(varying) > MAX_DIFFERENCES or len(set(texts)) < len(namesakes):
        return str(run.facts["run_id"])
    own = _flat(run.config)
    return ", ".join(f"{name}={own.get(name)}" for name in varying)


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat
