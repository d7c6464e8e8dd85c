"""What must not be missed beside a speedup: endings, loops, failures, test data, differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.contamination import num_overlapping
from benchmarks.records import ARMS
from benchmarks.report.groups import Entry, Group
from benchmarks.summary_text import show, stop_note

MAX_SHOWN = 12
"""Failures of one run that are listed."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the answers of one arm ended.

    Attributes:
        label: The run.
        arm: Who answered.
        num_answers: All turns and repeats that count.
        shares: By finish reason.
        mean_tokens: Output tokens per answer.
    """

    label: str
    arm: str
    num_answers: int
    shares: Mapping[str, float]
    mean_tokens: float


@dataclass(frozen=True, kw_only=True)
class Card:
    """One finding about one prompt.

    Attributes:
        title: Which run and prompt.
        facts: Names and values, values as text.
    """

    title: str
    facts: tuple[tuple[str, str], ...]


def endings(group: Group) -> list[Ending]:
    """Per run and arm, of the runs whose rows were kept.

    Raises:
        RunFolderError: If rows are damaged.
    """
    return [found for e in group.entries for arm in ARMS if (found := _ending(e, arm)) is not None]


def notes(group: Group) -> list[str]:
    """Sentences: loops, test data in datastores, differences, instability, skipped rows."""
    return [f"{entry.label}: {note}" for entry in group.entries for note in _notes(entry)]


def failures(group: Group) -> list[Card]:
    """The errors of each run, the first `MAX_SHOWN`."""
    return [
        Card(
            title=f"{entry.label}, prompt {failure['prompt_id']}, {failure['arm']}",
            facts=(
                (str(failure["type"]), str(failure["message"])),
                *([("at", str(failure["place"]))] if failure.get("place") else []),
            ),
        )
        for entry in group.entries
        for failure in entry.run.summary["failures"][:MAX_SHOWN]
    ]


def _ending(entry: Entry, arm: Any) -> Ending | None:
    turns = [turn for row in entry.rows(arm) for turn in row.turns]
    if not turns:
        return None
    counts = Counter(turn.finish_reason for turn in turns)
    return Ending(
        label=entry.label,
        arm=arm,
        num_answers=len(turns),
        shares={reason: count / len(turns) for reason, count in sorted(counts.items())},
        mean_tokens=sum(len(turn.output_ids) for turn in turns) / len(turns),
    )


def _notes(entry: Entry) -> list[str]:
    summary, metrics = entry.run.summary, entry.metrics
    notes = [note] if (note := stop_note(summary)) else []
    if summary["num_failed"]:
        notes.append(f"{summary['num_failed']} of {summary['num_prompts']} prompts failed")
    if metrics.get("repetition", {}).get("value") is not None:
        beside = show(metrics["vanilla_repetition"], ".0%")
        notes.append(
            f"repeats {show(metrics['repetition'], '.0%')} of its 4-grams, vanilla {beside}"
        )
    notes += [_store(facts) for facts in (entry.run.facts.get("datastores") or {}).values()]
    if summary["differences"]:
        notes.append(_differences(entry))
    if summary["unstable_prompts"]:
        notes.append(f"repeats gave different ids on {', '.join(summary['unstable_prompts'])}")
    if not summary.get("is_one_machine", True):
        notes.append("continued on another machine or with other versions")
    if entry.run.facts.get("num_skipped_rows"):
        notes.append(f"{entry.run.facts['num_skipped_rows']} damaged dataset rows were left out")
    if not entry.run.has_rows:
        notes.append("its rows were not kept: nothing about single steps can be shown")
    return notes


def _store(facts: Mapping[str, Any]) -> str:
    """What was searched, and how much of it overlaps with test data."""
    kind = str(facts["kind"]).removesuffix("s").replace("_", "-")
    num = facts["num_documents"]
    note = f"{kind} store of {num:,} document{'s' if num != 1 else ''}"
    found = num_overlapping(facts)
    if found is None:
        return f"{note}, not compared with test data"
    share = facts["report"]["overlap"].get("share_of_test_ngrams")
    known = "" if share is None else f" ({share:.1%} of the test data's n-grams)"
    return f"{note}, {found} of them overlap with test data{known}"


def _differences(entry: Entry) -> str:
    found = entry.run.summary["differences"]
    prompts = len({difference["prompt_id"] for difference in found})
    first = min(found, key=lambda difference: difference["position"])
    word = "though it is called lossless" if entry.is_lossless else "as a relaxed verifier may"
    note = (
        f"output differs from vanilla's on {prompts} of {entry.run.summary['num_measured']} prompts"
    )
    if entry.run.is_imported:  # Of texts: what a position counts is the importer's choice.
        return f"{note}, {word}"
    place = f"output token {first['position'] + 1} of prompt {first['prompt_id']}"
    return f"{note}, {word}; earliest at {place}"
