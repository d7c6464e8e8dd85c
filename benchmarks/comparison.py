"""Several runs in one table: acceptance and speed beside what the verifier did to the output."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from benchmarks.console import new_table, plain_console
from benchmarks.leaderboard.conditions import Facts, conditions_of
from benchmarks.leaderboard.headings import device_text
from benchmarks.markdown import pipe_table
from benchmarks.metrics import STEP_PHASES
from benchmarks.results import StoredRun
from benchmarks.summary_text import Summary, badge, show, show_count, stop_note, variant

SCORE, CERTIFICATE, STOPPED = "score (vanilla)", "certificate", "stopped early"
WORDS = (SCORE, CERTIFICATE, STOPPED)
"""Columns of words, which may need several lines."""
CONDITIONS = (
    "dataset_hash", "split", "num_prompts", "history", "state", "order_seed", "law", "repeats",
)  # fmt: skip
"""Facts that two runs must share beside what the title says."""
GAP = 2
"""Columns of a terminal between two of a table."""
DETAILS = "Drafts, and shares of the time after the prefill"
PHASES = tuple(phase for phase in STEP_PHASES if phase != "record")
"""Those of the method: `record` is what the harness writes down meanwhile."""
DRAFTS = {
    "tau": ("tau", ".2f"),
    "coverage": ("draft_coverage", ".0%"),
    "nodes/step": ("draft_nodes", ".1f"),
    "node acc.": ("node_acceptance_rate", ".1%"),
}
"""Columns about drafts: a metric and how it is written."""
EXPLANATION = (
    "tau: tokens per step; strict tau: the same trees under exact verification; coverage: steps "
    "with a draft; speedup: vanilla's wall time over the method's, or, where answers may differ in "
    "length, tokens per second over vanilla's; regret: nats per token below the argmax; ROUGE-L: "
    "against vanilla; certificate: prompts whose ids equal vanilla's, or what a difference means "
    "(scripts/leaderboard.py ranks)"
)


def comparable(runs: Sequence[StoredRun]) -> list[tuple[str, list[Summary]]]:
    """The summaries of runs by what must be equal to compare them, each group with a title.

    Equal are model, data, law, hardware and versions of what computes. Versions of this project's
    code may differ, and the title says so. Runs of one method in a group are told apart by their
    ids.
    """
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        if run.summary["num_measured"]:
            own = [run.facts.get(name) for name in CONDITIONS]
            key = json.dumps([conditions(run.summary), *own, _machine(run)])
            groups.setdefault(key, []).append(run)
    titles = _titles(list(groups.values()))
    return [
        (title, [run.summary for run in _told_apart(group)])
        for title, group in zip(titles, groups.values(), strict=True)
    ]


def _told_apart(runs: Sequence[StoredRun]) -> list[StoredRun]:
    return with_labels(runs, [f"{r.facts['method']} {r.facts.get('run_id', '')}" for r in runs])


def _machine(run: StoredRun) -> Facts:
    """The hardware, and the versions of what computes."""
    where = conditions_of(run)
    return (("", device_text(where.device)), *where.environment)


def _titles(groups: Sequence[Sequence[StoredRun]]) -> list[str]:
    """Of each group; what their machines differ in is named only where nothing else does."""
    names = [conditions(group[0].summary) for group in groups]
    machines = [_machine(group[0]) for group in groups]
    titles = []
    for name, machine, group in zip(names, machines, groups, strict=True):
        alike = [set(other) for own, other in zip(names, machines, strict=True) if own == name]
        shared = set.intersection(*alike)
        own = [" ".join(filter(None, fact)) for fact in machine if fact not in shared]
        versions = {run.env.get("code_version") for run in group} - {None}
        mixed = [f"{len(versions)} versions of the code"] if len(versions) > 1 else []
        titles.append(", ".join([name, *own, *mixed]))
    return titles


def conditions(summary: Summary) -> str:
    """Model and data of a run, in one line."""
    run = summary["run"]
    law, state = run.get("law") or {}, run.get("state", "reset")
    words = [f"temperature {law['temperature']:g}"] if law.get("temperature") else []
    words += [f"state {state}"] if state != "reset" else []
    return ", ".join(
        [
            f"{run['model']}{variant(run)} on {run['dataset']}",
            f"{_num_prompts(summary)} prompts x up to {run['max_new_tokens']} tokens",
            *words,
        ]
    )


def _num_prompts(summary: Summary) -> int:
    """Measured ones; of a run that was stopped all, so that it stands beside what it lost to."""
    stop = summary.get("stopped")
    return int(stop["num_total"] if stop else summary["num_measured"])


def table_of(runs: Sequence[Summary]) -> list[list[str]]:
    """Heads, vanilla as it was measured beside the first whole run, and a line per run.

    Columns that are empty in all runs are left out.
    """
    metrics = next((run for run in runs if not run.get("stopped")), runs[0])["metrics"]
    rate, tau = metrics["vanilla_tokens_per_second"], metrics["vanilla_tau"]
    vanilla = {"method": "vanilla", "tok/s": show(rate, ".1f"), "tau": show(tau, ".2f")}
    lines = [vanilla, *map(cells, runs)]
    heads = [head for head in cells(runs[0]) if any(line.get(head) for line in lines)]
    return [heads, *([line.get(head, "") for head in heads] for line in lines)]


def cells(summary: Summary) -> dict[str, str]:
    """One run as a line of the table, by the heads of its columns."""
    metrics = summary["metrics"]
    is_relaxed = "regret" in metrics
    return {
        "method": summary["run"]["method"],
        "tok/s": show(metrics["tokens_per_second"], ".1f"),
        "tau": show(metrics["tau"], ".2f"),
        "strict tau": show(metrics["strict_tau"], ".2f"),
        "coverage": show(metrics["draft_coverage"], ".0%"),
        "speedup [95 %]": show(metrics[summary["primary_speedup"]], "x"),
        "regret": show(metrics["regret"], ".3f") if is_relaxed else "",
        "ROUGE-L": show(metrics["rouge_l"], ".2f") if is_relaxed else "",
        SCORE: _scores(metrics),
        CERTIFICATE: _certificate(summary),
        STOPPED: stop_note(summary).removeprefix("stopped "),
    }


def _certificate(summary: Summary) -> str:
    """The badge; where nothing is promised also how many answers stayed the same."""
    same = show_count(summary["metrics"].get("identical_outputs"))
    is_promised = summary.get("certificate", {}).get("status") != "not promised"
    return badge(summary) if is_promised or not same else f"{badge(summary)}, {same} same"


def _scores(metrics: Mapping[str, Any]) -> str:
    """Each task score with vanilla's."""
    names = [name.partition(".")[2] for name in metrics if name.startswith("score.")]
    values = [
        f"{show(metrics[f'score.{name}'], '.2f')} ({show(metrics[f'vanilla_score.{name}'], '.2f')})"
        for name in names
    ]
    if len(names) < 2:
        return "".join(values)
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in pairs)


def render_comparison(runs: Sequence[StoredRun], *, has_details: bool = False) -> Group:
    """A table per group of comparable runs.

    Args:
        runs: The runs.
        has_details: Whether a second table says how drafts are made and where time goes.
    """
    parts: list[Any] = []
    for title, summaries in comparable(runs):
        parts += [Text(title, style="bold"), _grid(table_of(summaries)), ""]
        if has_details:
            parts += [Text(DETAILS, style="bold"), _grid(details_of(summaries)), ""]
    return Group(*parts, Text(EXPLANATION))


def _grid(lines: Sequence[Sequence[str]]) -> Table:
    heads, *rest = lines
    table = new_table(*heads, may_wrap=WORDS)
    for line in rest:
        table.add_row(*line)
    return table


def _width(lines: Sequence[Sequence[str]]) -> int:
    """What a table needs if its numbers are not to be broken, in columns of a terminal."""
    widths = [
        max(len(part) for text in texts for part in (text.split() if texts[0] in WORDS else [text]))
        for texts in zip(*lines, strict=True)
    ]
    return sum(widths) + GAP * (len(widths) - 1)


def details_of(runs: Sequence[Summary]) -> list[list[str]]:
    """Heads, and a line per run: its drafts, and the shares of the phases in the time after the
    prefill.

    Shares of a run on a GPU that did not wait for the device are left out: they would be wrong.
    """
    lines = []
    for run in runs:
        metrics, is_exact = run["metrics"], run["run"]["has_exact_phases"]
        speedup = metrics[run["primary_speedup"]]["value"]
        shares = (show(metrics[f"phase_share.{p}"], ".1%") if is_exact else "" for p in PHASES)
        lines.append([
            run["run"]["method"],
            *(show(metrics[name], form) for name, form in DRAFTS.values()),
            "" if speedup is None else f"{speedup:.2f}x",
            *shares,
        ])  # fmt: skip
    return [["method", *DRAFTS, "speedup", *PHASES], *lines]


def print_comparison(runs: Sequence[StoredRun], *, has_details: bool = False) -> None:
    """Prints the tables to stdout."""
    console = plain_console()
    tables = [
        table(summaries)
        for table in (table_of, *([details_of] if has_details else []))
        for _, summaries in comparable(runs)
    ]
    console.width = max([console.width, *map(_width, tables)])
    console.print(render_comparison(runs, has_details=has_details))


def with_labels(runs: Sequence[StoredRun], labels: Sequence[str]) -> list[StoredRun]:
    """The runs, those of a method that occurs more than once named by their labels."""
    names = [run.facts["method"] for run in runs]
    return [
        replace(run, summary={**run.summary, "run": {**run.facts, "method": label}})
        if names.count(name) > 1
        else run
        for run, name, label in zip(runs, names, labels, strict=True)
    ]


def differing(labels: Sequence[str]) -> list[str]:
    """Overrides of a sweep's cells without those that all of them share."""
    words = [shlex.split(label) for label in labels]
    shared = set.intersection(*map(set, words)) if words else set()
    return [" ".join(word for word in one if word not in shared) for one in words]


def markdown(runs: Sequence[StoredRun], *, has_details: bool = False) -> str:
    """The same tables for README files and notes."""
    blocks = []
    for title, summaries in comparable(runs):
        heads, *lines = table_of(summaries)
        blocks.append(f"{title}:\n\n{pipe_table(heads, lines)}\n")
        if has_details:
            heads, *lines = details_of(summaries)
            blocks.append(f"{DETAILS}:\n\n{pipe_table(heads, lines)}\n")
    return "\n".join([*blocks, f"{EXPLANATION}.\n"])


def sort_key(summary: Mapping[str, Any]) -> tuple[str, str, bool, float]:
    """Runs in the order of tables: by model and data, lossless ones first, slower ones first."""
    run = summary["run"]
    speedup = summary["metrics"].get(summary["primary_speedup"], {}).get("value") or 0.0
    return run["model"], run["dataset"], not run["is_lossless"], speedup
