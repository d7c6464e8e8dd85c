"""A small hidden-state store for retrievers that search one."""

from __future__ import annotations

from typing import Any


def toy_hidden_store() -> Any:
    """The store itself."""
    raise NotImplementedError
