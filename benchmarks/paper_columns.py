"""What the columns of a paper's table show of a run: figures of its summary or, where those do not
have them, pure functions of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.definitions import Definition
from benchmarks.metric_values import entry, metric
from benchmarks.metrics import STEP_PHASES
from benchmarks.prompt_table import ArmCounts, PromptTable
from benchmarks.results import StoredRun
from benchmarks.statistics import ratio
from benchmarks.summary_text import show

Figure = Mapping[str, Any]
"""`value`, and `interval` ([low, high] or None)."""
Group = Sequence[StoredRun]
"""All runs that were measured under the same conditions."""
Value = Callable[[StoredRun, Group], Figure | None]

FORWARD_AND_VERIFY = Definition(
    "share",
    "phase_share.forward_and_verify.of_decode_time",
    "Share of the target forwards and the verifier in the method's time after the prefill.",
)
CANDIDATE_TOKENS = Definition(
    "tokens/step",
    "candidate_tokens.micro.per_step",
    "Tokens of the candidates that may start a tree, per step.",
)
CANDIDATE_NODES = Definition(
    "nodes/step",
    "candidate_nodes.micro.per_step",
    "Nodes of those candidates' prefix tree before the node budget cuts it, per step.",
)
SPEEDUP_CHANGE = Definition(
    "ratio",
    "speedup_rate.minus_that_of_sense",
    "Speedup in tokens per second minus that of SENSE under the same conditions.",
)
STORE_BYTES = Definition("bytes", "store.bytes_on_disk", "Size of all datastores of the run.")
STORE_ENTRIES = Definition(
    "entries", "store.entries", "Keys of a hidden-state store, tokens of a token store."
)
PEAK_GROWTH = Definition(
    "bytes",
    "memory.peak_after_last_answer_minus_after_first",
    "How much the process' peak memory grows between the first answer and the last one, of either "
    "arm; the largest growth if several processes measured the run.",
)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column.

    Attributes:
        name: What published figures call the metric.
        head: Its title.
        form: How a value is written: a format, `x` or `+` (see `table.show`), `MB`, or `n` for
            whole numbers.
        value: The figure of a run.
        published: How a published figure is written, if with other digits than ours.
    """

    name: str
    head: str
    form: str
    value: Value
    published: Callable[[float], str] | None = None

    def published_text(self, value: float | None) -> str:
        """A published figure, with its own digits; empty if there is none."""
        if value is not None and self.published:
            return self.published(value)
        return self.text({"value": value, "interval": None})

    def text(self, figure: Figure | None) -> str:
        """A figure with its interval; empty if there is none."""
        if figure is None or figure["value"] is None:
            return ""
        value, interval = figure["value"], figure["interval"]
        if self.form in ("MB", "n"):
            return f"{value / 1e6:,.2f} MB" if self.form == "MB" else f"{value:,.0f}"
        if self.form[0] in "x+" or interval is None:
            return show(figure, self.form)
        low, high = (format(end, self.form) for end in interval)
        return f"{show(figure, self.form)} [{low}, {high}]"


def of_summary(name: str) -> Value:
    """A metric as the run wrote it."""
    return lambda run, _: run.summary["metrics"].get(name)


def of_score(prefix: str) -> Value:
    """The task score of a run that has one kind of it, for several have no common scale.

    Args:
        prefix: `score`, `vanilla_score` or `relative_score`.
    """

    def value(run: StoredRun, _: Group) -> Figure | None:
        metrics = run.summary["metrics"]
        found = [metrics[name] for name in metrics if name.startswith(f"{prefix}.")]
        return found[0] if len(found) == 1 else None

    return value


def of_phases(value: Value) -> Value:
    """Nothing for a run whose phases ended before their work on the device did."""
    return lambda run, group: value(run, group) if run.facts.get("has_exact_phases") else None


def not_measured(_: StoredRun, __: Group) -> None:
    """What only the paper has."""


def of_rows(
    definition: Definition, top: Callable[[ArmCounts], Any], bottom: Callable[[ArmCounts], Any]
) -> Value:
    """A ratio of sums over the method's rows; nothing if the rows were not kept."""

    def value(run: StoredRun, _: Group) -> Figure | None:
        if not run.has_rows:
            return None
        counts = PromptTable.from_requests(run.requests).method
        columns = [np.asarray(top(counts)), np.asarray(bottom(counts))]
        return metric("", columns, ratio, definition)[""]

    return value


def is_sense(run: StoredRun) -> bool:
    """Whether it has both halves of the method: semantic navigation and soft gates."""
    names = [(run.config.get(group) or {}).get("name") for group in ("retriever", "verifier")]
    return names == ["semantic", "soft_gated"]


def speedup_change(run: StoredRun, group: Group) -> Figure | None:
    """Against the one run of SENSE in the group; they were not measured in turns: no interval."""
    whole = [other for other in group if is_sense(other)]
    if len(whole) != 1 or run in whole:
        return None
    own, its = (r.summary["metrics"]["speedup_rate"] for r in (run, whole[0]))
    if own["value"] is None or its["value"] is None:
        return None
    return _single(own["value"] - its["value"], run, SPEEDUP_CHANGE)


def store_bytes(run: StoredRun, _: Group) -> Figure | None:
    """Size of a run's datastores on the disk."""
    stores = stores_of(run)
    total = sum(store["num_bytes"] for store in stores)
    return _single(total, run, STORE_BYTES) if stores else None


def store_entries(run: StoredRun, _: Group) -> Figure | None:
    """What can be found in a run's datastores: positions with a key, or tokens."""
    counts = [store["options"].get("num_keys", store["num_tokens"]) for store in stores_of(run)]
    return _single(sum(counts), run, STORE_ENTRIES) if counts else None


def peak_growth(run: StoredRun, _: Group) -> Figure | None:
    """Growth of the process' peak memory while answers were given; None if it is not known.

    The peak of a run on a GPU is that of the GPU's allocator, which is another quantity.
    """
    if not run.has_rows or run.facts["device"] != "cpu":
        return None
    peaks: dict[int, list[int]] = {}
    for row in run.requests:
        if row.peak_memory_bytes is not None:
            peaks.setdefault(row.session, []).append(row.peak_memory_bytes)
    # A process' peak never falls: the least one is that after its first answer.
    growths = [max(own) - min(own) for own in peaks.values()]
    return _single(max(growths), run, PEAK_GROWTH) if growths else None


def stores_of(run: StoredRun) -> list[Mapping[str, Any]]:
    """Facts of the run's datastores."""
    return list((run.facts.get("datastores") or {}).values())


def _single(value: float, run: StoredRun, definition: Definition) -> Figure:
    return entry("", value, None, run.summary["num_measured"], definition)[""]


TAU = Column(name="tau", head="tau", form=".2f", value=of_summary("tau"))
STRICT = Column(name="strict_tau", head="strict tau", form=".2f", value=of_summary("strict_tau"))
SPEEDUP = Column(
    name="speedup_rate", head="speedup (tok/s)", form="x", value=of_summary("speedup_rate")
)
SPEEDUP_TENTHS = replace(SPEEDUP, published="{:.1f}x".format)
RATE = Column(
    name="tokens_per_second", head="tok/s", form=".1f", value=of_summary("tokens_per_second")
)
NODES = Column(
    name="node_acceptance_rate",
    head="node acc.",
    form=".0%",
    value=of_summary("node_acceptance_rate"),
)
SCORE = Column(name="score", head="score", form=".2f", value=of_score("score"))
VANILLA_SCORE = Column(
    name="vanilla_score", head="vanilla's", form=".2f", value=of_score("vanilla_score")
)
RELATIVE = Column(
    name="relative_score",
    head="relative score",
    form=".3f",
    value=of_score("relative_score"),
    published=str,
)
JUDGE = Column(name="judge", head="judge's grade", form=".2f", value=not_measured)
ROUGE = Column(name="rouge_l", head="ROUGE-L to vanilla", form=".2f", value=of_summary("rouge_l"))
REGRET = Column(name="regret", head="regret (nats)", form=".3f", value=of_summary("regret"))
CHANGE = Column(
    name="speedup_change",
    head="speedup minus SENSE's",
    form="+",
    value=speedup_change,
    published="{:+.2f}".format,
)
BYTES = Column(
    name="store_bytes",
    head="store",
    form="MB",
    value=store_bytes,
    published=lambda value: f"{value / 1e6:,.0f} MB",
)
ENTRIES = Column(
    name="store_entries",
    head="entries",
    form="n",
    value=store_entries,
    published=lambda value: f"{value / 1e6:g} million",
)
GROWTH = Column(name="peak_growth", head="memory growth", form="MB", value=peak_growth)
PEAK = Column(name="peak_memory", head="peak memory", form="MB", value=of_summary("peak_memory"))
COMPRESSION = Column(
    name="compression", head="compression", form=".1%", value=of_summary("compression")
)
DRAFT_NODES = Column(
    name="draft_nodes", head="within budget", form=".1f", value=of_summary("draft_nodes")
)
TOKENS_PER_STEP = Column(
    name="candidate_tokens",
    head="tokens/step",
    form=".1f",
    value=of_rows(CANDIDATE_TOKENS, lambda m: m["candidate_tokens"], lambda m: m["steps"]),
)
NODES_PER_STEP = Column(
    name="candidate_nodes",
    head="nodes/step",
    form=".1f",
    value=of_rows(
        CANDIDATE_NODES,
        lambda m: m["candidate_tokens"] - m["saved_tokens"],
        lambda m: m["steps"],
    ),
)
FORWARD_VERIFY = Column(
    name="forward_and_verify",
    head="forward + verify",
    form=".1%",
    value=of_phases(
        of_rows(
            FORWARD_AND_VERIFY,
            lambda m: m["phase:forward"] + m["phase:verify"],
            lambda m: sum(m[f"phase:{phase}"] for phase in STEP_PHASES),
        )
    ),
)


def share_of(phase: str, head: str) -> Column:
    """The share of one phase in the time of steps."""
    name = f"phase_share.{phase}"
    return Column(name=name, head=head, form=".1%", value=of_phases(of_summary(name)))
