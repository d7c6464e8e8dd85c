"""Measures one method on one model and one dataset, beside its vanilla baseline.

python run.py method=pld model=smollm2-135m dataset=quickstart
python run.py --help lists every choice and option; -m sweeps them.
"""

from __future__ import annotations

import sys
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import configs
from benchmarks.cli import Outcome, measure, start_logging
from benchmarks.comparison import print_comparison, with_labels

OUTCOMES: list[tuple[Outcome, str]] = []
"""One per job of a sweep, with its overrides; a job that fails stops none of the others."""


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def main(config: DictConfig) -> None:
    """Config -> objects -> run folder; a user's mistake is one message, not a traceback."""
    start_logging()
    chosen = HydraConfig.get().runtime.choices
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        outcome = measure(plain, configs.swapped_primitives(chosen["method"], chosen))
    except OmegaConfBaseException as error:
        outcome = Outcome(code=2, message=str(error))
    if outcome.message:
        job = HydraConfig.get()
        cell = f" in {' '.join(job.overrides.task)}" if job.mode == RunMode.MULTIRUN else ""
        sys.stderr.write(f"error{cell}: {outcome.message.strip()}\n")
    OUTCOMES.append((outcome, " ".join(HydraConfig.get().overrides.task)))


if __name__ == "__main__":
    if unknown := configs.unknown_choice(sys.argv[1:]):
        sys.exit(f"error: {unknown}")
    # Hydra takes -m in front of the overrides only; people put it anywhere.
    flags = [word for word in sys.argv[1:] if word in ("-m", "--multirun")]
    sys.argv[1:] = flags[:1] + [word for word in sys.argv[1:] if word not in flags]
    main()
    finished = [(outcome.summary, label) for outcome, label in OUTCOMES if outcome.summary]
    if len(finished) > 1:
        summaries, labels = zip(*finished, strict=True)
        print_comparison(with_labels(summaries, labels))
    sys.exit(max((outcome.code for outcome, _ in OUTCOMES), default=0))
