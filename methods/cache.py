"""Where downloaded models and built datastores are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """`$SD_PRIMITIVES_CACHE`, or `sd-primitives` in `$XDG_CACHE_HOME` or in `~/.cache`."""
    if own := os.environ.get("SD_PRIMITIVES_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sd-primitives"
