"""The walk that exact verifiers share: from node 0 to the child that carries the next token."""

from __future__ import annotations

from collections.abc import Callable

from primitives.types import ROOT_REASON, DraftTree, Verdict


def walk_exact_matches(tree: DraftTree, next_token: Callable[[int], int]) -> Verdict:
    """Moves from node 0 to the child that equals `next_token(node)` for as long as there is one.

    Args:
        tree: The draft tree.
        next_token: Called once per visited node; the token that follows it.

    Returns:
        The path, its reasons (`em` behind node 0), and the first token that no child carries.
    """
    children = tree.children()
    path = [0]
    while True:
        token_id = next_token(path[-1])
        match = [child for child in children[path[-1]] if tree.token_ids[child] == token_id]
        if not match:
            reasons = (ROOT_REASON, *["em"] * (len(path) - 1))
            return Verdict(path=tuple(path), next_id=token_id, reasons=reasons)
        path.append(match[0])
