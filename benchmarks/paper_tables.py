"""The tables of a paper that experiments repeat: where a run belongs, and what is shown of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import paper_columns as col
from benchmarks import paper_rows as rows
from benchmarks.results import StoredRun

Row = Callable[[StoredRun, col.Group], str | None]
"""The row of a run among the others of its group; None if it does not belong into the table."""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table that runs are put into.

    Attributes:
        name: The experiment.
        title: What it is in the paper.
        row: Where a run belongs.
        columns: In order.
        notes: What must be known to read it, a line each.
    """

    name: str
    title: str
    row: Row
    columns: tuple[col.Column, ...]
    notes: tuple[str, ...] = ()


_SPEED = (col.TAU, col.STRICT, col.SPEEDUP)
_CHANGED = (col.REGRET, col.ROUGE)
_SCORES = (col.SCORE, col.VANILLA_SCORE)
_PROPOSE = col.share_of("propose", "propose")
_RELAXED = (
    "Published acceptance lengths count relaxed and exact acceptances alike, as tau does: they are "
    "no strict tau."
)
_MORE = (
    "Reasons of acceptance, output lengths and repetition are in the table of each run and in its "
    "summary.json."
)
_ONE_SCORE = "Score: of runs with one kind of it; several kinds have no common one (summary.json)."
_PHASES = (
    "Shares: ours of the time after the prefill, on a GPU with profile=true only; of what the "
    "published ones are is not stated, and that verification has the forward in it is our reading."
)
_NOISE = (
    "Published: a larger store is not always faster (LongBench-v2), and on GSM8K the store of the "
    "smaller tau is: noise is as large as these effects."
)
_RATES = (
    "Published tokens per second imply a vanilla of 13.3 on GSM8K, 7.9 on Code Alpaca and 4.9 on "
    "LongBench-v2 (8k): those of different data do not belong together."
)

_TABLES = (
    PaperTable(
        name="main",
        title="Main table: methods",
        row=rows.by_method,
        columns=(*_SPEED, col.NODES, col.SCORE, *_CHANGED),
        notes=(_RELAXED, _ONE_SCORE, _MORE),
    ),
    PaperTable(
        name="table3",
        title="Table 3: ablation of SEN and SE",
        row=rows.by_ablation,
        columns=(*_SPEED, col.CHANGE, *_CHANGED),
        notes=(
            "Minus SENSE's: difference of two speedups, each measured beside its own vanilla; "
            "published: means over datasets.",
            "Without SEN the store alone is searched, with it the text so far, too.",
            _MORE,
        ),
    ),
    PaperTable(
        name="table4",
        title="Table 4: verifiers on the same retrieval",
        row=rows.by_verifier,
        columns=(*_SPEED, *_CHANGED, col.SCORE, col.JUDGE),
        notes=(
            "SEN+ARC: the greedy rule is ours (none is published); its constants are SmolLM2's "
            "unless calibrated.",
            "Judge's grade: published only; its scale is not stated.",
            _RELAXED,
            _ONE_SCORE,
            _MORE,
        ),
    ),
    PaperTable(
        name="table5",
        title="Table 5: gamma and k",
        row=rows.by_gate,
        columns=(col.TAU, col.STRICT, col.SPEEDUP_TENTHS, *_SCORES, *_CHANGED),
        notes=(
            "The published 0.98 at the default is above vanilla's 0.93: it may be a share.",
            _ONE_SCORE,
            _MORE,
        ),
    ),
    PaperTable(
        name="table6",
        title="Table 6: quality",
        row=rows.by_method,
        columns=(*_SPEED, *_SCORES, col.RELATIVE, *_CHANGED),
        notes=(_ONE_SCORE, _MORE),
    ),
    PaperTable(
        name="table8",
        title="Tables 8 and 9: size of stores, and memory",
        row=rows.by_method,
        columns=(col.BYTES, col.ENTRIES, col.PEAK, col.GROWTH),
        notes=(
            "Memory growth: ours of the process' peak, of runs on a CPU only (other systems than "
            "Linux keep the peak of the cells before); published: of resident memory.",
        ),
    ),
    PaperTable(
        name="scaling",
        title="Size of the store",
        row=rows.by_size,
        columns=(col.ENTRIES, col.RATE, *_SPEED, _PROPOSE, col.FORWARD_VERIFY, *_CHANGED),
        notes=(_PHASES, _NOISE, _RATES, _RELAXED, _MORE),
    ),
    PaperTable(
        name="cross_domain",
        title="Stores of other data",
        row=rows.by_store,
        columns=(*_SPEED, *_SCORES, *_CHANGED),
        notes=(_NOISE, _RELAXED, _ONE_SCORE, _MORE),
    ),
    PaperTable(
        name="fig7",
        title="Figure 7: time of a step",
        row=rows.by_method,
        columns=(
            _PROPOSE,
            col.share_of("build", "build"),
            col.FORWARD_VERIFY,
            col.share_of("commit", "commit"),
            col.share_of("observe", "observe"),
        ),
        notes=(_PHASES, "Published figures: those of the store-scaling table."),
    ),
    PaperTable(
        name="fig8",
        title="Figure 8: compression by the prefix tree",
        row=rows.by_method,
        columns=(col.TOKENS_PER_STEP, col.NODES_PER_STEP, col.COMPRESSION, col.DRAFT_NODES),
        notes=(
            "Compression: share of the candidates' tokens that their tree saves, before the node "
            "budget cuts it; ours of candidates that may start a tree (others never reach it), "
            "published: of all retrieved candidates.",
        ),
    ),
    PaperTable(
        name="long_prompts",
        title="Long prompts",
        row=rows.by_method,
        columns=(*_SPEED, *_SCORES, *_CHANGED),
        notes=(_RELAXED, _ONE_SCORE, _MORE),
    ),
)
TABLES: dict[str, PaperTable] = {table.name: table for table in _TABLES}
"""By the name of the experiment."""


def table_of_experiments(names: Sequence[str]) -> PaperTable | None:
    """The table of the first experiment that has one."""
    return next((TABLES[name] for name in names if name in TABLES), None)
