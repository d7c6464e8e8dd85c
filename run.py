"""Measures one method on one model and one dataset, beside its vanilla baseline.

python run.py method=pld model=smollm2-135m dataset=quickstart
python run.py --help lists every choice and option; -m sweeps them.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

import configs
from benchmarks.cli import measure

ERRORS = Console(stderr=True, highlight=False, soft_wrap=True)


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def main(config: DictConfig) -> None:
    """Config -> objects -> run folder; a user's mistake is one message, not a traceback."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    swapped = configs.swapped_primitives(HydraConfig.get().overrides.task)
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        sys.exit(_fail(str(error)))
    code, message = measure(plain, swapped)
    if message:
        _fail(message)
    if code:
        sys.exit(code)


def _fail(message: str) -> int:
    ERRORS.print(f"[bold red]error[/]: {message.strip()}", markup=True)
    return 2


if __name__ == "__main__":
    if unknown := configs.unknown_choice(sys.argv[1:]):
        sys.exit(_fail(unknown))
    main()
