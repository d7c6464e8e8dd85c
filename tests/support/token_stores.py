"""A small token store for retrievers that search one."""

from __future__ import annotations

from typing import Any

import numpy as np


def toy_documents() -> list[np.ndarray]:
    """Its documents."""
    return []


def toy_token_store() -> Any:
    """The store itself."""
    raise NotImplementedError
