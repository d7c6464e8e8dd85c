"""The results of a run as tables for people; all of them, with definitions, are in summary.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.console import new_table, plain_console
from benchmarks.contamination import num_overlapping
from benchmarks.datasets.reader import shorten
from benchmarks.metrics import STEP_PHASES
from benchmarks.statistics import quality_verdict, verdict
from benchmarks.summary_text import Summary, badge, show, show_count, stop_note, variant

MAX_FAILURES = 3
"""How many failed prompts are printed."""


def print_results(summary: Summary, console: Console | None = None) -> None:
    """Prints the tables to stdout, in plain text where that is no terminal."""
    (console or plain_console()).print(render(summary))


def render(summary: Summary) -> Group:
    """All tables and notes of one run."""
    run = summary["run"]
    parts: list[RenderableType] = [
        Text(f"{run['method']} on {run['dataset']}, {run['model']}{variant(run)}", style="bold")
    ]
    if summary["num_measured"]:
        parts += [_arms(summary), "", _verdict(summary)]
        if not run["is_lossless"]:
            parts += ["", _quality(summary)]
        if any(name.startswith("score.") for name in summary["metrics"]):
            parts += ["", _scores(summary)]
        if len(summary["categories"]) > 1:
            parts += ["", _categories(summary)]
        if run["has_exact_phases"]:
            parts += ["", _phases(summary)]
    notes = _notes(summary)
    return Group(*parts, *([""] if notes else []), *map(Text, notes))


def _arms(summary: Summary) -> Table:
    """Vanilla, the method and the library's generate, one line each."""
    metrics, speedup = summary["metrics"], summary["primary_speedup"]
    is_same = metrics["strict_tau"]["value"] == metrics["tau"]["value"]
    is_exact = summary["run"]["is_lossless"] and is_same
    columns = [
        ("tok/s", "tokens_per_second", ".1f"),
        ("tau", "tau", ".2f"),
        *([] if is_exact else [("strict", "strict_tau", ".2f")]),
        ("coverage", "draft_coverage", ".0%"),
        ("node acc.", "node_acceptance_rate", ".0%"),
        ("speedup [95 %]", speedup, "x"),
        ("decode", "decode_speedup_rate" if speedup == "speedup_rate" else "decode_speedup", "x-"),
    ]
    table = new_table("", *(head for head, _, _ in columns), "same ids", "failed")
    vanilla = {
        "tok/s": show(metrics["vanilla_tokens_per_second"], ".1f"),
        "tau": show(metrics["vanilla_tau"], ".2f"),
    }
    table.add_row("vanilla", *(vanilla.get(head, "") for head, _, _ in columns), "", "")
    name = summary["run"]["method"]
    table.add_row(
        "vanilla again" if name == "vanilla" else name,
        *(show(metrics[name], form) for _, name, form in columns),
        show_count(metrics.get("identical_outputs")),
        str(summary["num_failed"]),
    )
    if "generate_tokens_per_second" in metrics:
        rate = show(metrics["generate_tokens_per_second"], ".1f")
        same = show_count(metrics["identical_to_generate"])
        table.add_row("generate", rate, *[""] * (len(columns) - 1), same, "")
    return table


def _quality(summary: Summary) -> Table:
    """What a relaxed verifier kept, and what that did to the output."""
    metrics = summary["metrics"]
    reasons = [name for name in metrics if name.startswith("accepted_by_reason.")]
    table = new_table(
        "accepted as",
        *(name.partition(".")[2] for name in reasons),
        "regret",
        *(["its bound"] if "regret_bound" in metrics else []),
        "ROUGE-L",
        "tokens (vanilla)",
    )
    table.add_row(
        summary["run"]["method"],
        *(show(metrics[name], ".0%") for name in reasons),
        show(metrics["regret"], ".3f"),
        *([show(metrics["regret_bound"], ".3f")] if "regret_bound" in metrics else []),
        show(metrics["rouge_l"], ".2f"),
        _beside(metrics, "output_tokens", ".0f"),
    )
    return table


def _scores(summary: Summary) -> Table:
    """How good the answers are, and whether the method made them worse."""
    metrics = summary["metrics"]
    table = new_table(
        "score", "prompts", "vanilla", summary["run"]["method"], "relative", "change [95 %]", ""
    )
    for name in metrics:
        kind, _, what = name.partition(".")
        if kind == "score":
            change = metrics[f"score_change.{what}"]
            table.add_row(
                what.replace("_", " "),
                str(metrics[name]["num_prompts"]),
                show(metrics[f"vanilla_{name}"], ".3f"),
                show(metrics[name], ".3f"),
                show(metrics[f"relative_score.{what}"], ".2f"),
                show(change, "+"),
                quality_verdict(change["interval"]),
            )
    return table


def _beside(metrics: Mapping[str, Any], name: str, form: str) -> str:
    """A value with vanilla's in brackets."""
    return f"{show(metrics[name], form)} ({show(metrics[f'vanilla_{name}'], form)})"


def _categories(summary: Summary) -> Table:
    speedup = summary["primary_speedup"]
    table = new_table("category", "prompts", "tok/s", "tau", "coverage", "speedup [95 %]", "")
    for category, metrics in summary["categories"].items():
        interval = metrics[speedup]["interval"]
        table.add_row(
            category,
            str(metrics["tau"]["num_prompts"]),
            show(metrics["tokens_per_second"], ".1f"),
            show(metrics["tau"], ".2f"),
            show(metrics["draft_coverage"], ".0%"),
            show(metrics[speedup], "x"),
            verdict(interval),
        )
    return table


def _verdict(summary: Summary) -> Text:
    """The headline in words, and what else must be known to read it."""
    metrics, num_prompts = summary["metrics"], summary["num_measured"]
    word = verdict(metrics[summary["primary_speedup"]]["interval"])
    lines = [f"{summary['run']['method']} against vanilla: {word} ({num_prompts} prompts)"]
    if note := stop_note(summary):
        lines.append(f"{note} (stop_early=false continues it)")
    if not summary["has_equal_lengths"]:
        lines.append(
            f"lengths differ (on average {show(metrics['output_tokens'], '.0f')} tokens, vanilla's "
            f"{show(metrics['vanilla_output_tokens'], '.0f')}): speedup in tokens/s "
            f"{show(metrics['speedup_rate'], 'x')}, in time {show(metrics['speedup'], 'x')}"
        )
    if "certificate" in summary:
        lines.append(_certificate(summary))
    lines.append(
        f"answers cut off at the budget: {_beside(metrics, 'length_share', '.0%')}, repeated "
        f"4-grams: {_beside(metrics, 'repetition', '.0%')}, in brackets vanilla's"
    )
    if "control_speedup" in metrics:
        lines.append(
            f"vanilla against itself: {show(metrics['control_speedup'], 'x')}, same ids "
            f"{show_count(metrics['identical_to_control'])}"
        )
    if "vanilla_over_generate" in metrics:
        beside = metrics["vanilla_over_generate"]
        lines.append(
            f"vanilla has {show(beside, 'x')} the tokens/s of the library's generate "
            f"({beside['num_prompts']} prompts)"
        )
    return Text("\n".join(lines))


def _certificate(summary: Summary) -> str:
    """Status and badge, and of a law what would have been found."""
    certificate = summary["certificate"]
    line = f"certificate: {certificate['status']} ({badge(summary)})"
    surprise = certificate.get("surprise") or {}
    if not surprise or surprise["method"]["z"] is None:
        return line
    method, vanilla = surprise["method"], surprise["vanilla"]
    control = "" if vanilla["z"] is None else f", vanilla's z {vanilla['z']:+.1f}"
    return (
        f"{line}: surprise of {method['num_tokens']} sampled tokens against the target's entropy"
        f"{control}; a bias of {method['resolution']:.2f} nats per token would be found"
    )


def _phases(summary: Summary) -> Table:
    """Where the time of the method's steps goes."""
    metrics = summary["metrics"]
    table = new_table("step time", *STEP_PHASES, "outside forward")
    names = [*(f"phase_share.{phase}" for phase in STEP_PHASES), "overhead"]
    table.add_row("", *(show(metrics[name], ".1%") for name in names))
    return table


def _notes(summary: Summary) -> list[str]:
    """What a reader must not miss."""
    notes = []
    run = summary["run"]
    if "peak_memory" in summary["metrics"]:
        notes.append(f"peak memory {summary['metrics']['peak_memory']['value'] / 1e9:.2f} GB")
    notes += [_datastore_note(facts) for facts in run["datastores"].values()]
    failures = {failure["prompt_id"]: failure for failure in summary["failures"][::-1]}
    for prompt_id, failure in list(failures.items())[: -MAX_FAILURES - 1 : -1]:
        reason = f"{failure['type']}: {failure['message']}".splitlines()[0]
        place = f" [{failure['place']}]" if failure.get("place") else ""
        notes.append(f"prompt {prompt_id} failed ({failure['arm']}): {shorten(reason, 200)}{place}")
    if len(failures) > MAX_FAILURES:
        notes.append(f"... and {len(failures) - MAX_FAILURES} more prompts, see summary.json")
    if run["is_lossless"] and summary["differences"]:
        first = summary["differences"][0]
        is_text = first.get("unit") == "characters"
        what, unit = ("texts", "character") if is_text else ("output ids", "output token")
        notes.append(
            f"{what} differ from vanilla's, first on prompt {first['prompt_id']}, "
            f"turn {first['turn'] + 1}, {unit} {first['position'] + 1}{_gap(summary)}"
        )
    if summary["unstable_prompts"]:
        names = ", ".join(summary["unstable_prompts"][:MAX_FAILURES])
        notes.append(f"repeats gave different ids on {names}")
    if not summary["is_one_machine"]:
        notes.append("continued on another machine or with other versions, see env.json")
    if run["num_skipped_rows"]:
        notes.append(f"{run['num_skipped_rows']} damaged dataset rows were left out")
    return notes


def _gap(summary: Summary) -> str:
    """How far the differing tokens are from the argmax, if anybody looked."""
    found = [d for d in summary.get("certificate", {}).get("divergences", ()) if "num_outside" in d]
    if not found:
        return ""
    largest = max(d["largest_gap_spacings"] for d in found)
    num_outside = sum(d["num_outside"] for d in found)
    num_tokens = sum(d["num_tokens"] for d in found)
    return (
        f"; {num_outside} of {num_tokens} tokens of such answers lie beyond rounding, the farthest "
        f"{largest:.1f} spacings below the argmax (examination.json)"
    )


def _datastore_note(facts: Mapping[str, Any]) -> str:
    """What was searched, and whether it holds test data."""
    found = num_overlapping(facts)
    kind = facts["kind"].removesuffix("s").replace("_", "-")
    note = (
        f"{kind} store: {facts['num_tokens']:,} tokens in {facts['num_documents']:,} documents, "
        f"{facts['num_bytes'] / 1e6:,.2f} MB"
    )
    if found is None:
        return f"{note}; not compared with test data"
    return f"{note}; {found} of them overlap with test data" if found else note
