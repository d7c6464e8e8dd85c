"""Where outputs leave vanilla's, as the certificates of runs tell: one card each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report.groups import Entry, Group

MAX_CARDS = 12
"""Of one run."""
_FACTS = {
    "gap": "gap to the largest logit",
    "spacing": "spacing of the dtype",
    "largest_gap_spacings": "largest gap, in spacings",
    "num_outside": "tokens beyond rounding",
    "num_tokens": "tokens checked",
    "cache_len": "rows in the cache",
}


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """One answer that differs from vanilla's.

    Attributes:
        title: Run, prompt and place.
        facts: Names and values.
        context: The end of what both answers share; empty if it was not looked at.
        vanilla: How vanilla goes on.
        other: How the other answer goes on.
        logits: Title of a list of best tokens, and per token its text and its logit.
        tree: The draft tree of the step, a line per node; empty without one.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    context: str
    vanilla: str
    other: str
    logits: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    tree: str


def divergences(group: Group) -> list[Divergence]:
    """Those of all runs, the first `MAX_CARDS` of each."""
    return [
        _divergence(entry, found)
        for entry in group.entries
        for found in (entry.run.summary.get("certificate") or {}).get("divergences", [])[:MAX_CARDS]
    ]


def draw_tree(tree: Mapping[str, Sequence[Any]]) -> str:
    """A line per node, children below their parent; nodes that were kept have a filled mark.

    Args:
        tree: A `StepTree` as JSON.
    """
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree["parents"]):
        children.setdefault(parent, []).append(node)
    lines: list[str] = []
    stack = [(node, 0) for node in reversed(children.get(-1, []))]
    while stack:
        node, depth = stack.pop()
        mark = "●" if node in tree["path"] else "○"
        source = f"  [{tree['sources'][node]}]" if tree["sources"][node] else ""
        lines.append(f"{'   ' * depth}{mark} {_visible(tree['tokens'][node])}{source}")
        stack += [(child, depth + 1) for child in reversed(children.get(node, []))]
    return "\n".join(lines)


def _divergence(entry: Entry, found: Mapping[str, Any]) -> Divergence:
    facts = [(word, _number(found[n])) for n, word in _FACTS.items() if found.get(n) is not None]
    if found.get("step") is not None:
        facts.append(
            ("step", str(found["step"] + 1))
        )  # Counted from 1, as on the rest of the page.
    if found.get("tree_path"):
        facts.append(("path to the node that chose it", " → ".join(map(str, found["tree_path"]))))
    if found.get("is_reproduced") is False:
        facts.append(("decoded again", "took another way, so there is no tree to show"))
    tops = {"one row": found.get("top_logits"), "in the tree": found.get("tree_top_logits")}
    return Divergence(
        title=(
            f"{entry.label}{_arm(found)}, prompt {found['prompt_id']}, turn {found['turn'] + 1}, "
            f"output token {found['position'] + 1}"
        ),
        facts=tuple(facts),
        context=str(found.get("context") or ""),
        vanilla="".join(found.get("vanilla_tokens") or ()),
        other="".join(found.get("tokens") or ()),
        logits=tuple(
            (title, tuple((_visible(top["text"]), f"{top['logit']:.4f}") for top in best))
            for title, best in tops.items()
            if best
        ),
        tree=draw_tree(found["tree"]) if found.get("tree") else "",
    )


def _arm(found: Mapping[str, Any]) -> str:
    """Which arm it was, if it was not the method."""
    return "" if found.get("arm", "method") == "method" else f" ({found['arm']})"


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _visible(token: str) -> str:
    """A token with its spaces and line ends to be seen."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥") or "∅"
