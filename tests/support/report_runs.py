"""Run folders made from hand-made rows, for reports."""

from __future__ import annotations

import json
from dataclasses import replace

import yaml

from benchmarks.metrics import summarize
from benchmarks.records import SCHEMA_VERSION
from benchmarks.results import read_run
from benchmarks.steps import StepTree
from support.rows import make_row, make_turn, path, vanilla_steps

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"
"""What a prompt or an answer might hold."""

TREES = (
    StepTree(
        token_ids=(7, 8, 9, 10, 11),
        tokens=("the", " cat", " sat", " dog", " ran"),
        parents=(-1, 0, 1, 0, 3),
        sources=("", "static", "dynamic", "static", "static"),
        path=(0, 1, 2),
    ),
    StepTree(token_ids=(12,), tokens=(" on",), parents=(-1,), sources=("",), path=(0,)),
)
"""A step that outputs " cat", " sat", " on", and one without a draft that outputs `HOSTILE`."""


def traced_turn(*, wall_ns=300, is_traced=True):
    """Five output tokens in the two steps of `TREES`."""
    steps = [(4, path("em", "topk"), (0.0, 0.0, 0.25), (0.0, 0.0, 0.5)), (0, path())]
    turn = make_turn(steps, wall_ns=wall_ns, propose=60, forward=120, text=f"the cat {HOSTILE}")
    columns = replace(turn.steps, sources=(("", "static", "dynamic"), ("",)))
    if not is_traced:
        return replace(turn, steps=columns)
    words = ("the", " cat", " sat", " on", HOSTILE)
    return replace(turn, steps=replace(columns, trees=TREES), output_tokens=words)


def answers(num_prompts=6, *, wall_ns=300, is_traced=True):
    """Vanilla in 600 ns, the method in `wall_ns`; both output the same ids."""
    rows = []
    for number in range(num_prompts):
        vanilla = make_turn(vanilla_steps(4), wall_ns=600, text=f"vanilla {number}")
        method = traced_turn(wall_ns=wall_ns, is_traced=is_traced)
        rows.append(make_row(f"p{number}", "vanilla", vanilla))
        rows.append(make_row(f"p{number}", "method", method))
    return rows


def write_run(
    folder, method, rows, *, is_lossless=True, code="c1", config=None, data="d1", **summary
):
    """A finished run in a folder of its own; returns it as it is read back."""
    place = folder / method
    place.mkdir(parents=True)
    facts = {
        "run_id": f"{method}-id", "model": "m", "dataset": "d", "split": "test", "method": method,
        "num_prompts": 6, "num_skipped_rows": 0, "repeats": 1, "is_greedy": True,
        "is_lossless": is_lossless, "has_exact_phases": True, "state": "reset", "history": "own",
        "max_new_tokens": 8, "device": "cpu", "dtype": "float32", "linear_kernels": None,
        "datastores": {},
    }  # fmt: skip
    version = {"schema_version": SCHEMA_VERSION, "run": facts}
    found = summarize(rows, is_greedy=True, is_lossless=is_lossless)
    files = {
        "summary.json": {**version, "is_one_machine": True, **found, **summary},
        "env.json": {
            **version,
            "code_version": code,
            "hashes": {"dataset": data, "model": {}},
            "sessions": [{"device_name": "a chip", "time": "2026-01-02T03:04:05"}],
        },
        "status.json": {"state": "done", "num_rows": len(rows)},
    }
    for name, value in files.items():
        (place / name).write_text(json.dumps(value))
    (place / "config.yaml").write_text(yaml.safe_dump(config or {}))
    (place / "requests.jsonl").write_bytes(b"".join(row.to_line() for row in rows))
    return read_run(place)
