"""The decoding steps of one answer, in columns with one entry per step, as rows keep them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from methods.generation import StepRecord

_COUNTS = (
    "num_draft_nodes", "num_accepted", "num_output", "num_strict", "match_len", "draft_depth",
    "candidate_tokens", "candidate_nodes", "step_ns",
)  # fmt: skip
_WORDS = ("reasons", "sources")
_NUMBERS = ("regrets", "regret_bounds")
_DIGITS = 6
_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class StepTree:
    """The draft tree of one step, for people.

    Attributes:
        token_ids: Per node; node 0 is pending.
        tokens: Per node, its text where it stands.
        parents: Per node the index of its parent, -1 at depth 0.
        sources: Per node where it came from; "" for node 0.
        path: The committed nodes.
    """

    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    parents: tuple[int, ...]
    sources: tuple[str, ...]
    path: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StepTree:
        """The inverse of `to_json`."""
        return cls(**{name: tuple(items) for name, items in value.items()})


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The decoding steps of one response, in columns; see `StepRecord` for their meaning.

    Attributes:
        num_draft_nodes: Per step.
        num_accepted: Per step.
        num_output: Per step, in tokens.
        num_strict: Per step, in tokens.
        match_len: Per step, in tokens.
        draft_depth: Per step.
        candidate_tokens: Per step, in tokens.
        candidate_nodes: Per step.
        step_ns: Wall time of each step.
        reasons: Per step the reason of each committed node.
        sources: Per step the source of each committed node.
        regrets: Per step the regret of each committed node in nats; empty if all are 0.
        regret_bounds: Per step its bound for each committed node in nats; empty without one.
        num_below: Per step; None in rows from before it was counted.
        trees: Per step the draft tree; None if they were not recorded.
    """

    num_draft_nodes: tuple[int, ...] = ()
    num_accepted: tuple[int, ...] = ()
    num_output: tuple[int, ...] = ()
    num_strict: tuple[int, ...] = ()
    match_len: tuple[int, ...] = ()
    draft_depth: tuple[int, ...] = ()
    candidate_tokens: tuple[int, ...] = ()
    candidate_nodes: tuple[int, ...] = ()
    step_ns: tuple[int, ...] = ()
    reasons: tuple[tuple[str, ...], ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()
    regrets: tuple[tuple[float, ...], ...] = ()
    regret_bounds: tuple[tuple[float, ...], ...] = ()
    num_below: tuple[int, ...] | None = None
    trees: tuple[StepTree, ...] | None = None

    def __post_init__(self) -> None:
        optional = [name for name in ("num_below", "trees") if getattr(self, name) is not None]
        for name in (*_COUNTS, *_WORDS, *_NUMBERS, *optional):
            length = len(getattr(self, name))
            if length != len(self):
                raise ValueError(f"{name} must have one entry per step ({len(self)}), got {length}")

    def __len__(self) -> int:
        return len(self.num_output)

    @classmethod
    def from_records(
        cls,
        records: Sequence[StepRecord],
        step_ns: Sequence[int],
        trees: Sequence[StepTree] | None = None,
    ) -> Steps:
        """The columns of a generation's step records."""
        columns: dict[str, Any] = {
            name: tuple(getattr(record, name) for record in records)
            for name in (*_COUNTS, *_WORDS)
            if name != "step_ns"
        }
        for name in _NUMBERS:
            values = (getattr(record, name) for record in records)
            columns[name] = tuple(tuple(round(x, _DIGITS) for x in row) for row in values)
        kept = None if trees is None else tuple(trees)
        num_below = tuple(record.num_below for record in records)
        return cls(step_ns=tuple(step_ns), num_below=num_below, trees=kept, **columns)

    def to_json(self) -> dict[str, Any]:
        """Counts as lists; tuples as the distinct ones and one index per step."""
        counts = {name: list(getattr(self, name)) for name in _COUNTS}
        # Most steps have no regrets or the same reasons: each distinct tuple is written once.
        columns = {name: _to_categories(getattr(self, name)) for name in (*_WORDS, *_NUMBERS)}
        trees = {} if self.trees is None else {"trees": [tree.to_json() for tree in self.trees]}
        below = {} if self.num_below is None else {"num_below": list(self.num_below)}
        return counts | columns | below | trees

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Steps:
        """The inverse of `to_json`."""
        columns: dict[str, Any] = {name: tuple(value[name]) for name in _COUNTS}
        columns |= {
            name: tuple(tuple(value[name]["values"][code]) for code in value[name]["codes"])
            for name in (*_WORDS, *_NUMBERS)
        }
        trees = value.get("trees")
        kept = None if trees is None else tuple(map(StepTree.from_json, trees))
        num_below = value.get("num_below")
        return cls(trees=kept, num_below=None if num_below is None else tuple(num_below), **columns)


def _to_categories(column: Sequence[_Item]) -> dict[str, list[Any]]:
    """The distinct entries in order of appearance, and for each entry its index among them."""
    codes = {value: code for code, value in enumerate(dict.fromkeys(column))}
    return {"values": list(codes), "codes": [codes[value] for value in column]}
