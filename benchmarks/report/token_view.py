"""What the page's script needs to show single answers, as compact JSON values.

Words occur thousands of times: each distinct text is stored once in `texts`, and everything else
holds its index. So do `reasons` and `sources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.records import Request, Turn
from benchmarks.report.attribution import attribute
from benchmarks.report.groups import Entry, Group
from benchmarks.report.prompts import prompt_turns
from benchmarks.sequences import shared_prefix
from benchmarks.steps import StepTree

MAX_PROMPTS = 24
"""Prompts per run on a page, unless asked for more."""


@dataclass
class Index:
    """Distinct texts in order of appearance."""

    numbers: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        """The number of a text."""
        return self.numbers.setdefault(text, len(self.numbers))


@dataclass(frozen=True, kw_only=True)
class TokenView:
    """Collects the answers of all runs.

    Attributes:
        max_prompts: Of each run, at least 1; those with token texts first.
        texts: Words and whole texts.
        reasons: Why tokens were kept.
        sources: Where tokens came from.
    """

    max_prompts: int = MAX_PROMPTS
    texts: Index = field(default_factory=Index)
    reasons: Index = field(default_factory=Index)
    sources: Index = field(default_factory=Index)

    def __post_init__(self) -> None:
        if self.max_prompts < 1:
            raise ValueError(f"max_prompts must be ≥ 1, got {self.max_prompts}")

    def to_json(self, groups: Sequence[Group]) -> dict[str, Any]:
        """All runs whose rows were kept, and the texts that they point to.

        Raises:
            RunFolderError: If rows are damaged.
        """
        runs = [
            {"label": f"{entry.label} ({group.entries[0].run.facts['dataset']})",
             "prompts": self._prompts(entry)}
            for group in groups for entry in group.entries if entry.run.has_rows
        ]  # fmt: skip
        return {
            "runs": [run for run in runs if run["prompts"]],
            "texts": list(self.texts.numbers),
            "reasons": list(self.reasons.numbers),
            "sources": list(self.sources.numbers),
        }

    def _prompts(self, entry: Entry) -> list[dict[str, Any]]:
        texts = prompt_turns(entry.run)
        vanilla = {r.prompt_id: r for r in entry.rows("vanilla") if r.repeat == 0}
        rows = [r for r in entry.rows("method") if r.repeat == 0]
        return [
            {
                "id": row.prompt_id,
                "category": row.category,
                "traced": row.turns[0].output_tokens is not None,
                "turns": self._turns(row, vanilla.get(row.prompt_id), texts.get(row.prompt_id, ())),
            }
            for row in select(rows, self.max_prompts)
        ]

    def _turns(
        self, row: Request, vanilla: Request | None, texts: Sequence[str]
    ) -> list[dict[str, Any]]:
        turns = []
        for number, turn in enumerate(row.turns):
            beside = None if vanilla is None else vanilla.turns[number]
            turns.append(
                self._turn(turn, beside)
                | {"prompt": self.texts(texts[number]) if number < len(texts) else None}
            )
        return turns

    def _turn(self, turn: Turn, vanilla: Turn | None) -> dict[str, Any]:
        value: dict[str, Any] = {
            "text": self.texts(turn.text),
            "vanilla": None if vanilla is None else self.texts(vanilla.text),
            "differs": None if vanilla is None else _first_difference(turn, vanilla),
            "finish": turn.finish_reason,
            "ids": list(turn.output_ids) if turn.output_tokens is None else None,
            "words": None if turn.output_tokens is None else [*map(self.texts, turn.output_tokens)],
        }
        if turn.steps is None:
            return value
        tokens = attribute(turn)
        trees = turn.steps.trees
        return value | {
            "steps": [token.step for token in tokens],
            "reasons": [self.reasons(token.reason) for token in tokens],
            "sources": [self.sources(token.source) for token in tokens],
            "regrets": {n: token.regret for n, token in enumerate(tokens) if token.regret},
            "nodes": list(turn.steps.num_draft_nodes),
            "trees": None if trees is None else [self._tree(tree) for tree in trees],
        }

    def _tree(self, tree: StepTree) -> dict[str, Any]:
        return {
            "words": [self.texts(token) for token in tree.tokens],
            "parents": list(tree.parents),
            "sources": [self.sources(source) if source else -1 for source in tree.sources],
            "path": list(tree.path),
        }


def select(rows: Sequence[Request], limit: int) -> list[Request]:
    """At most `limit` of the rows, in order: those with recorded token texts, then others.

    The others are evenly apart, so that all parts of a dataset are seen.
    """
    traced = [n for n, row in enumerate(rows) if row.turns[0].output_tokens is not None][:limit]
    others = [n for n in range(len(rows)) if n not in traced]
    room = min(limit - len(traced), len(others))
    chosen = {*traced, *(others[place * len(others) // room] for place in range(room))}
    return [rows[n] for n in sorted(chosen)]


def _first_difference(turn: Turn, vanilla: Turn) -> int | None:
    """Position of the first output id that differs; None if the ids are the same."""
    ids, vanilla_ids = turn.output_ids, vanilla.output_ids
    return None if ids == vanilla_ids else shared_prefix(ids, vanilla_ids)
