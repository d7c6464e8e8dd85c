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
        note: What must be known to read it; may be empty.
    """

    name: str
    title: str
    row: Row
    columns: tuple[col.Column, ...]
    note: str = ""


_SPEED = (col.TAU, col.STRICT, col.SPEEDUP)
_SCORES = (col.SCORE, col.VANILLA_SCORE)
_PROPOSE = col.share_of("propose", "propose")
_RELAXED = (
    "Published acceptance lengths count relaxed and exact acceptances alike, as tau does: they are "
    "no strict tau."
)

_TABLES = (
    PaperTable(
        name="main",
        title="Main table: methods",
        row=rows.by_method,
        columns=(*_SPEED, col.NODES, col.SCORE),
        note=_RELAXED,
    ),
    PaperTable(
        name="table3",
        title="Table 3: ablation of SEN and SE",
        row=rows.by_ablation,
        columns=(*_SPEED, col.CHANGE),
        note="To SENSE: difference of two speedups, each measured beside its own vanilla.",
    ),
    PaperTable(
        name="table4",
        title="Table 4: verifiers on the same retrieval",
        row=rows.by_verifier,
        columns=(*_SPEED, col.REGRET, col.ROUGE, col.SCORE),
        note=_RELAXED,
    ),
    PaperTable(
        name="table5",
        title="Table 5: gamma and k",
        row=rows.by_gate,
        columns=(*_SPEED, *_SCORES, col.ROUGE),
        note="The published 0.98 at the default is above vanilla's 0.93: it may be a share.",
    ),
    PaperTable(
        name="table6",
        title="Table 6: quality",
        row=rows.by_method,
        columns=(col.SPEEDUP, *_SCORES, col.RELATIVE, col.ROUGE, col.REGRET),
    ),
    PaperTable(
        name="table8",
        title="Tables 8 and 9: size of stores, and memory",
        row=rows.by_method,
        columns=(col.BYTES, col.ENTRIES, col.PEAK, col.GROWTH),
        note="Memory growth: ours of the peak, which cells in one process share; published: of "
        "resident memory.",
    ),
    PaperTable(
        name="scaling",
        title="Size of the store",
        row=rows.by_size,
        columns=(col.ENTRIES, col.RATE, col.TAU, col.SPEEDUP, _PROPOSE, col.FORWARD_VERIFY),
    ),
    PaperTable(
        name="cross_domain",
        title="Stores of other data",
        row=rows.by_store,
        columns=(*_SPEED, *_SCORES),
        note=_RELAXED,
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
        note="Published of retrieval and verification, the latter with the target's forward.",
    ),
    PaperTable(
        name="fig8",
        title="Figure 8: compression by the prefix tree",
        row=rows.by_method,
        columns=(col.TOKENS_PER_STEP, col.NODES_PER_STEP, col.COMPRESSION, col.DRAFT_NODES),
        note="Candidates' tokens and nodes of their tree, before the node budget cuts it.",
    ),
    PaperTable(
        name="long_prompts",
        title="Long prompts",
        row=rows.by_method,
        columns=(*_SPEED, *_SCORES),
        note=_RELAXED,
    ),
)
TABLES: dict[str, PaperTable] = {table.name: table for table in _TABLES}
"""By the name of the experiment."""


def table_of_experiments(names: Sequence[str]) -> PaperTable | None:
    """The table of the first experiment that has one."""
    return next((TABLES[name] for name in names if name in TABLES), None)
