"""Which runs may stand in one table: those that differ in nothing but the method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from benchmarks.comparison import sort_key
from benchmarks.leaderboard.conditions import Conditions, conditions_of
from benchmarks.prompt_table import PromptTable
from benchmarks.records import Arm, Request, Turn
from benchmarks.results import StoredRun
from benchmarks.summary_text import variant


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A run and its name on the page.

    Attributes:
        run: What it wrote.
        label: Its method, with the run id if another run of the group has the same one.
        style: Number of its colour and marker, from 0, the same for a label in every group.
    """

    run: StoredRun
    label: str
    style: int

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of its summary."""
        metrics: dict[str, Any] = self.run.summary["metrics"]
        return metrics

    @property
    def is_lossless(self) -> bool:
        """Whether the method promises vanilla's output."""
        return bool(self.run.facts["is_lossless"])

    @cached_property
    def failed(self) -> frozenset[str]:
        """Prompts that count in no metric, since vanilla or the method failed on them."""
        return frozenset(PromptTable.from_requests(self.run.requests).failed)

    def rows(self, arm: Arm) -> list[Request]:
        """The rows of an arm that count; none if they were not kept.

        Raises:
            RunFolderError: If they are damaged.
        """
        if not self.run.has_rows:
            return []
        return [
            request
            for request in self.run.requests
            if request.arm == arm and request.turns and request.prompt_id not in self.failed
        ]

    def turns(self, arm: Arm) -> dict[str, list[Turn]]:
        """Answers with recorded steps by prompt, all repeats together.

        Raises:
            RunFolderError: If the rows are damaged.
        """
        turns: dict[str, list[Turn]] = {}
        for request in self.rows(arm):
            seen = [turn for turn in request.turns if turn.steps is not None]
            turns.setdefault(request.prompt_id, []).extend(seen)
        return {prompt_id: answers for prompt_id, answers in turns.items() if answers}


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs of equal conditions.

    Attributes:
        title: The conditions, in one line.
        entries: At least one, lossless ones first, then by speedup.
    """

    title: str
    entries: tuple[Entry, ...]


def group_runs(runs: Sequence[StoredRun]) -> list[Group]:
    """The runs that measured a prompt, by all that must be equal to compare them."""
    groups: dict[Conditions, list[StoredRun]] = {}
    for run in sorted(runs, key=lambda run: sort_key(run.summary)):
        if run.summary["num_measured"]:
            groups.setdefault(conditions_of(run), []).append(run)
    labels = {key: _labels(members) for key, members in groups.items()}
    styles = {name: n for n, name in enumerate(dict.fromkeys(chain(*labels.values())))}
    titles = {key: _title(members[0]) for key, members in groups.items()}
    return [
        Group(
            title="; ".join(
                [titles[key], *_apart([k for k in groups if titles[k] == titles[key]], key)]
            ),
            entries=tuple(
                Entry(run=run, label=label, style=styles[label])
                for run, label in zip(members, labels[key], strict=True)
            ),
        )
        for key, members in groups.items()
    ]


def device_name(run: StoredRun) -> str:
    """What the run was measured on, as the machine calls it."""
    sessions = run.env.get("sessions") or [{}]
    return str(sessions[-1].get("device_name") or run.facts.get("device") or "unknown device")


def code_version(run: StoredRun) -> str:
    """Hash of the code that measured; `unknown` for an import that does not tell."""
    return str(run.env.get("code_version") or "unknown")


def _title(run: StoredRun) -> str:
    facts = run.facts
    law = "greedy" if facts.get("is_greedy") else f"temperature {run.config.get('temperature')}"
    return (
        f"{facts['model']}{variant(facts)} on {facts['dataset']}, {facts['num_prompts']} prompts x "
        f"up to {facts['max_new_tokens']} tokens, {law}; {device_name(run)}"
    )


def _apart(alike: Sequence[Conditions], one: Conditions) -> list[str]:
    """What one of some conditions does not share with all the others."""
    facts = [dict.fromkeys((*key.environment, *key.settings, *key.details)) for key in alike]
    shared = set(facts[0]).intersection(*facts)
    own = (*one.environment, *one.settings, *one.details)
    return [f"{name} {value}" for name, value in own if (name, value) not in shared]


def _labels(runs: Sequence[StoredRun]) -> list[str]:
    """Names that no two runs share: the method, its run id if needed, a number for copies."""
    labels = [f"{run.facts['method']}{', stopped' * run.is_stopped}" for run in runs]
    ids = [str(run.facts["run_id"])[:6] for run in runs]
    labels = [f"{x} {i}" if labels.count(x) > 1 else x for x, i in zip(labels, ids, strict=True)]
    return [
        f"{label} ({labels[:place].count(label) + 1})" if labels.count(label) > 1 else label
        for place, label in enumerate(labels)
    ]
