"""Writes down the cells of a sweep before the first one starts, so that missing ones are known.

Not beside the launcher: a callback travels to the jobs, which know installed packages only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from benchmarks.outcomes import note_cells


class NoteCells(Callback):
    """Hydra calls it once per sweep, in the process that was started by the user."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Expands the overrides as Hydra's own sweeper does."""
        params = config.hydra.sweeper.get("params") or {}
        note_cells(Path(str(config.hydra.sweep.dir)), cells(config.hydra.overrides.task, params))


def cells(words: Sequence[str], params: Mapping[str, object]) -> list[str]:
    """The overrides of each cell, in the order in which they are numbered.

    Args:
        words: Overrides of the command.
        params: `hydra.sweeper.params`, which an experiment may hold.
    """
    texts = [*(f"{key}={value}" for key, value in params.items()), *words]
    choices = []
    for override in OverridesParser.create().parse_overrides(texts):
        key = override.get_key_element()
        if override.is_sweep_override():
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([f"{key}={override.get_value_element_as_str()}"])
    return [" ".join(cell) for cell in product(*choices)]
