"""Figures that others have published, as data: never computed with, only shown beside ours.

Source: SENSE (Chen et al. 2026, arXiv 2606.00021), as quoted in its abstract and in public drafts
of the authors' answers to reviewers; the tables themselves were not at hand. Where the drafts do
not agree, both figures stand here. Speedups are ratios of tokens per second, and acceptance lengths
count relaxed and exact acceptances alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SETTING = "SENSE (arXiv 2606.00021): greedy, float32, 4 x RTX 4090"
"""Under what conditions all of them were measured."""

UNSTATED = "not stated"
ID, OOD = "SENSE (ID store)", "SENSE (OOD store)"
"""Stores of the model's own answers, and of reference answers."""
NO_STORE, OTHER_STORE = "SENSE (store not stated)", "SENSE (UltraChat store)"
ALL, MEAN, MEAN_OF_FOUR, MEAN_OOD = "all", "mean of all", "mean of four", "mean, OOD stores"
GENERAL = (UNSTATED, ALL, MEAN, MEAN_OF_FOUR, MEAN_OOD)
"""What stands for a dataset where a figure is of no single one."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """One line of a published table.

    Attributes:
        table: The experiment that it belongs to.
        row: What was measured, as `paper_rows` calls it.
        model: As the source calls it.
        dataset: In this project's words where it has the dataset.
        source: Where the figures stand.
        values: Figures by metric, in the units of `paper_columns`.
    """

    table: str
    row: str
    model: str
    dataset: str
    source: str
    values: Mapping[str, float]


def _lines(
    table: str, model: str, source: str, figures: Mapping[tuple[str, str], Mapping[str, float]]
) -> tuple[Published, ...]:
    """One line per (row, dataset)."""
    return tuple(
        Published(table=table, row=row, model=model, dataset=data, source=source, values=values)
        for (row, data), values in figures.items()
    )


def _speed(speedup: float, tau: float) -> dict[str, float]:
    return {"speedup_rate": speedup, "tau": tau}


def _scaled(
    speed: float | None, rate: float, tau: float, search: float, verify: float
) -> dict[str, float]:
    known = {} if speed is None else {"speedup_rate": speed}
    shares = {"phase_share.propose": search, "forward_and_verify": verify}
    return {**known, "tokens_per_second": rate, "tau": tau, **shares}


def _long(score: float, vanilla: float, tau: float, speed: float) -> dict[str, float]:
    return {"score": score, "vanilla_score": vanilla, **_speed(speed, tau)}


_SENSE_OF_TABLE_4 = {
    "gsm8k": _speed(2.94, 3.44), "codealpaca": _speed(3.30, 3.95),
    "ultrachat": _speed(2.59, 3.04), "triviaqa": _speed(2.72, 3.63),
    MEAN_OF_FOUR: {"speedup_rate": 2.89},
}  # fmt: skip
_MAIN = (
    *_lines("main", UNSTATED, "abstract", {("SENSE (largest)", UNSTATED): _speed(3.26, 4.09)}),
    *_lines(
        "main", "Qwen2.5-7B", "Table 4", {(NO_STORE, d): v for d, v in _SENSE_OF_TABLE_4.items()}
    ),
    *_lines("main", "Qwen3-14B", "beside Table 8", {(NO_STORE, "gsm8k"): {"speedup_rate": 2.73}}),
    *_lines(
        "main", "Qwen3-8B", "cross-domain stores",
        {
            (ID, "gsm8k"): _speed(1.73, 2.63), (ID, "ultrachat"): _speed(2.09, 2.18),
            (ID, "codealpaca"): _speed(2.75, 3.02),
        },
    ),
    *_lines(
        "main", "Qwen3-8B", "store scaling",
        {
            (NO_STORE, "codealpaca"): _speed(2.75, 2.79), (OOD, "codealpaca"): _speed(1.86, 2.34),
        },
    ),
    *_lines(
        "main", "all", "Table 7 (smallest, mean, largest)",
        {(f"SENSE ({word})", ALL): {"node_acceptance_rate": share}
         for word, share in (("smallest", 0.02), ("mean", 0.07), ("largest", 0.35))},
    ),
    *_lines(
        "main", "Qwen3-8B", "Spec-Bench, one draft",
        {(OTHER_STORE, "spec_bench"): {"speedup_rate": 1.63}},
    ),
    *_lines(
        "main", "Qwen3-8B", "Spec-Bench, another draft",
        {(OTHER_STORE, "spec_bench"): {"speedup_rate": 2.32}},
    ),
)  # fmt: skip

_TABLE_3 = _lines(
    "table3", "Qwen3-8B", "Table 3",
    {
        ("without SEN", MEAN_OOD): {"speedup_change": -0.35},
        ("without SE", MEAN_OOD): {"speedup_change": -0.32},
        ("without both", MEAN_OOD): {"speedup_change": -0.67},
    },
)  # fmt: skip

_TABLE_4 = _lines(
    "table4", "Qwen2.5-7B", "Table 4",
    {
        ("SEN+ARC", "gsm8k"): _speed(2.51, 3.09), ("SEN+ARC", "codealpaca"): _speed(2.87, 3.71),
        ("SEN+ARC", "ultrachat"): _speed(2.14, 2.71), ("SEN+ARC", "triviaqa"): _speed(1.97, 2.42),
        ("SEN+ARC", MEAN_OF_FOUR): {"speedup_rate": 2.37, "judge": 3.44},
        ("SEN+FLy", "gsm8k"): _speed(2.43, 3.02), ("SEN+FLy", "codealpaca"): _speed(2.83, 3.71),
        ("SEN+FLy", "ultrachat"): _speed(2.02, 2.57), ("SEN+FLy", "triviaqa"): _speed(2.32, 2.89),
        ("SEN+FLy", MEAN_OF_FOUR): {"speedup_rate": 2.40, "judge": 3.34},
        **{("SENSE", data): values for data, values in _SENSE_OF_TABLE_4.items()},
        ("SENSE", MEAN_OF_FOUR): {"speedup_rate": 2.89, "judge": 3.39},
    },
)  # fmt: skip

_TABLE_5 = _lines(
    "table5", UNSTATED, "Table 5",
    {
        ("gamma 0.01, k 3", UNSTATED): {"score": 0.82, "speedup_rate": 4.3},
        ("gamma 0.01, k 10", UNSTATED): {"score": 0.16, "speedup_rate": 8.2},
        ("gamma 0.05, k 3", UNSTATED): {"score": 0.98, "speedup_rate": 2.8},
        ("gamma 0.3, k 3", UNSTATED): {"score": 0.93, "vanilla_score": 0.93, "speedup_rate": 2.2},
    },
)  # fmt: skip

_TABLE_6 = (
    *_lines("table6", "all", "Table 6", {(NO_STORE, MEAN): {"relative_score": 0.9812}}),
    *_lines(
        "table6", "all", "Table 6, another draft", {(NO_STORE, MEAN): {"relative_score": 0.9802}}
    ),
    *_lines(
        "table6", "Qwen2.5-14B", "Table 6",
        {
            (ID, "gsm8k"): {"score": 0.89, "vanilla_score": 0.95, "relative_score": 0.937},
            (OOD, "gsm8k"): {"score": 0.95, "vanilla_score": 0.95, "relative_score": 1.0},
        },
    ),
    *_lines(
        "table6", "Qwen3-8B", "cross-domain stores",
        {(ID, "gsm8k"): {"score": 0.83, "vanilla_score": 0.91}},
    ),
)  # fmt: skip

_TABLE_8 = (
    *_lines("table8", "Llama2-7B", "Table 8", {(NO_STORE, "gsm8k"): {"store_bytes": 105e6}}),
    *_lines("table8", "Qwen2.5-7B", "Table 8", {(NO_STORE, "gsm8k"): {"store_bytes": 268e6}}),
    *_lines("table8", "Qwen3-14B", "Table 8", {(NO_STORE, "gsm8k"): {"store_bytes": 406e6}}),
    *_lines(
        "table8", "Qwen2.5-14B", "Table 8", {(NO_STORE, "codealpaca"): {"store_bytes": 3690e6}}
    ),
    *_lines(
        "table8", UNSTATED, "entries of stores",
        {
            (ID, "gsm8k"): {"store_entries": 2.1e6}, (ID, "codealpaca"): {"store_entries": 16e6},
            (ID, "ultrachat"): {"store_entries": 15e6}, (ID, "triviaqa"): {"store_entries": 5e6},
            (ID, "LongBench-v2"): {"store_entries": 1.7e6},
        },
    ),
    *_lines(
        "table8", "all", "Table 9 (smallest, largest)",
        {
            ("SENSE (smallest)", ALL): {"peak_growth": 2.76e6},
            ("SENSE (largest)", ALL): {"peak_growth": 19.89e6},
        },
    ),
)  # fmt: skip

_SIZES = _lines(
    "scaling", "Qwen3-8B", "store scaling",
    {
        ("25 % of the store", "codealpaca"): _scaled(2.26, 17.9, 2.47, 0.019, 0.922),
        ("50 % of the store", "codealpaca"): _scaled(2.45, 19.3, 2.76, 0.025, 0.915),
        ("75 % of the store", "codealpaca"): _scaled(2.47, 19.5, 2.76, 0.032, 0.908),
        ("100 % of the store", "codealpaca"): _scaled(2.75, 21.7, 2.79, 0.041, 0.900),
        ("25 % of the store", "gsm8k"): _scaled(None, 18.3, 2.58, 0.014, 0.933),
        ("50 % of the store", "gsm8k"): _scaled(None, 18.2, 2.35, 0.016, 0.923),
        ("75 % of the store", "gsm8k"): _scaled(None, 18.2, 2.38, 0.017, 0.924),
        ("100 % of the store", "gsm8k"): _scaled(None, 20.3, 2.45, 0.017, 0.930),
        ("25 % of the store", "LongBench-v2, 8k"): _scaled(None, 12.9, 2.96, 0.009, 0.949),
        ("50 % of the store", "LongBench-v2, 8k"): _scaled(None, 11.1, 2.73, 0.008, 0.935),
        ("75 % of the store", "LongBench-v2, 8k"): _scaled(None, 7.6, 1.94, 0.008, 0.953),
        ("100 % of the store", "LongBench-v2, 8k"): _scaled(None, 11.6, 3.10, 0.007, 0.960),
    },
)  # fmt: skip

_SCALING = (
    *_SIZES,
    *_lines(
        "scaling", "Qwen3-8B", "store scaling, another draft",
        {("100 % of the store", "codealpaca"): {"tau": 3.02}},
    ),
)  # fmt: skip

_CROSS_DOMAIN = _lines(
    "cross_domain", "Qwen3-8B", "cross-domain stores",
    {
        ("store of gsm8k (ID)", "gsm8k"): {**_speed(1.73, 2.63), "score": 0.83,
                                           "vanilla_score": 0.91},
        ("store of ultrachat (ID)", "gsm8k"): {**_speed(1.94, 2.20), "score": 0.87,
                                               "vanilla_score": 0.91},
        ("store of ultrachat (ID)", "ultrachat"): _speed(2.09, 2.18),
        ("store of gsm8k (ID)", "ultrachat"): _speed(1.97, 2.49),
        ("store of codealpaca (ID)", "codealpaca"): _speed(2.75, 3.02),
        ("store of ultrachat (ID)", "codealpaca"): _speed(1.94, 2.31),
    },
)  # fmt: skip

_SHARES = ("phase_share.propose", "forward_and_verify")
_FIG_7 = tuple(
    Published(
        table="fig7",
        row=NO_STORE,
        model=line.model,
        dataset=line.dataset,
        source=line.source,
        values={name: line.values[name] for name in _SHARES},
    )
    for line in _SIZES
    if line.row.startswith("100 %")
)

_FIG_8 = _lines("fig8", UNSTATED, "Figure 8", {(NO_STORE, UNSTATED): {"compression": 0.734}})

_LONG = _lines(
    "long_prompts", "Qwen3-8B", "LongBench-v2",
    {
        ("pld", "LongBench-v2, 8k"): _long(0.25, 0.25, 1.73, 1.31),
        ("pld", "LongBench-v2, 16k"): _long(0.34, 0.36, 1.86, 1.85),
        ("dresd", "LongBench-v2, 8k"): _long(0.25, 0.25, 1.37, 1.38),
        ("dresd", "LongBench-v2, 16k"): _long(0.36, 0.36, 1.45, 1.90),
        (OOD, "LongBench-v2, 8k"): _long(0.23, 0.25, 1.89, 1.50),
        (OOD, "LongBench-v2, 16k"): _long(0.36, 0.36, 1.60, 1.92),
        (ID, "LongBench-v2, 8k"): _long(0.25, 0.25, 3.10, 2.36),
        (ID, "LongBench-v2, 16k"): _long(0.37, 0.36, 2.29, 2.34),
    },
)  # fmt: skip

PUBLISHED: tuple[Published, ...] = (
    *_MAIN, *_TABLE_3, *_TABLE_4, *_TABLE_5, *_TABLE_6, *_TABLE_8, *_SCALING, *_CROSS_DOMAIN,
    *_FIG_7, *_FIG_8, *_LONG,
)  # fmt: skip


def published(table: str, dataset: str) -> list[Published]:
    """The lines of a table: those on this dataset and on none in particular, or all of them if
    there is none on this one.

    Args:
        table: Name of an experiment.
        dataset: What ours was measured on.
    """
    lines = [line for line in PUBLISHED if line.table == table]
    if all(line.dataset != dataset for line in lines):
        return lines
    return [line for line in lines if line.dataset in (dataset, *GENERAL)]
