"""Measures the constants of verifier `arc` on a model, and prints them as overrides.

python scripts/calibrate_arc.py                                   SmolLM2 on quickstart, two minutes
python scripts/calibrate_arc.py model=llama3-8b dataset=gsm8k limit=50

Options are those of run.py; `limit`, `max_new_tokens` and `dataset.split` say what is answered: the
train split, 32 prompts and 32 tokens unless told otherwise; `verifier.theta` is what tau_delta is
for. Nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

import configs
from benchmarks.arc_calibration import Swap, collect_swaps, fit
from benchmarks.cli import start_logging
from benchmarks.plan import load_dataset, load_model
from methods.targets.base import EmbeddingModel
from methods.targets.errors import ModelUnavailable
from primitives.structures.scaled_embeddings import ScaledEmbeddings

DEFAULTS = (
    "method=vanilla", "verifier=arc", "dataset.split=train", "limit=32", "max_new_tokens=32",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the overrides; a user's mistake is one message, not a traceback."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", help="as for run.py, e.g. model=llama3-8b")
    overrides = parser.parse_args(arguments).overrides
    start_logging()
    try:
        print(calibrate(overrides))
    except (ValueError, OSError, ModelUnavailable, HydraException, OmegaConfBaseException) as error:
        sys.stderr.write(f"error: {str(error).strip()}\n")
        return 2
    return 0


def calibrate(overrides: Sequence[str]) -> str:
    """The overrides of verifier `arc` for a model.

    Raises:
        ValueError: If a choice or a value is wrong, or the model offers no embeddings.
        ModelUnavailable: If it cannot be had as asked.
        OSError: If a file cannot be read.
    """
    if unknown := configs.unknown_choice(overrides):
        raise ValueError(unknown)
    config = configs.composed(*configs.with_defaults(overrides, DEFAULTS))
    prompts = load_dataset(config).prompts
    model = load_model(config["model"])
    if not isinstance(model.target, EmbeddingModel):
        raise ValueError(f"model={model.name} offers no input embeddings to calibrate on")
    embeddings = ScaledEmbeddings.of(model.target.embeddings)
    swaps: list[Swap] = []
    for prompt in prompts:
        prompt_ids = model.codec.encode([("user", prompt.turns[0])])
        swaps += collect_swaps(model.target, embeddings, prompt_ids, config["max_new_tokens"])
        print(f"{len(swaps)} positions", file=sys.stderr)
    theta = float(config["verifier"]["theta"])
    constants = fit(swaps, theta=theta)
    words = [f"{name}={getattr(constants, name):.3g}" for name in ("c_e", "c_l", "tau_delta")]
    return " ".join(f"verifier.{word}" for word in (*words, f"theta={theta:g}"))


if __name__ == "__main__":
    sys.exit(main())
