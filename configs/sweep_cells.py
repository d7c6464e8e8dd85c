"""Writes down the cells of a sweep before the first one starts, so that missing ones are known.

Not beside the launcher: a callback travels to the jobs, which know installed packages only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from benchmarks.outcomes import label_of, note_cells


class NoteCells(Callback):
    """Hydra calls it once per sweep, in the process that was started by the user."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Expands the overrides as Hydra's own sweeper does."""
        params = config.hydra.sweeper.get("params") or {}
        loader = GlobalHydra.instance().config_loader()
        labels = cells(config.hydra.overrides.task, params, loader)
        note_cells(Path(str(config.hydra.sweep.dir)), labels)


def cells(
    words: Sequence[str], params: Mapping[str, object], loader: ConfigLoader | None = None
) -> list[str]:
    """The overrides of each cell, in the order in which they are numbered.

    Args:
        words: Overrides of the command.
        params: `hydra.sweeper.params`, which an experiment may hold; a word with the same key
            takes the place of one.
        loader: What knows the files that `glob` stands for.
    """
    texts = [*(f"{key}={value}" for key, value in params.items()), *words]
    choices: dict[str, list[str]] = {}
    for override in OverridesParser.create(loader).parse_overrides(texts):
        key = override.get_key_element()
        if override.is_sweep_override():
            values = list(override.sweep_string_iterator())
        else:
            values = [override.get_value_element_as_str()]
        choices[key] = [f"{key}={value}" for value in values]
    return [label_of(cell) for cell in product(*choices.values())]
