"""The label of a model in tables and result paths."""

from __future__ import annotations

import re


def model_label(name: str | None, name_or_path: str) -> str:
    """`name`, or else the last part of a hub name or folder; safe as one part of a path.

    Raises:
        ValueError: If nothing is left to make a label of.
    """
    last = (
        name if name is not None else name_or_path.rstrip("/\\").replace("\\", "/").split("/")[-1]
    )
    label = re.sub(r"[^\w.+-]+", "-", last).strip("-.")
    if not label:
        raise ValueError(f"model.name must hold a letter or a digit, got {last!r}")
    return label
