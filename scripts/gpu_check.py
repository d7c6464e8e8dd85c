"""Is this GPU in order? Certificates, costs and speeds on SmolLM2 in less than four minutes.

python scripts/gpu_check.py
python scripts/gpu_check.py --device cpu --dtype float32 --limit 2 --max-new-tokens 16
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import torch

import configs
from benchmarks import speed
from benchmarks.bench_inputs import encode_prompts, long_context
from benchmarks.cli import measure, start_logging
from benchmarks.comparison import print_comparison
from benchmarks.console import plain_console
from benchmarks.machine import peak_memory, synchronize
from benchmarks.options import at_least_1
from benchmarks.plan import load_model
from benchmarks.provenance import describe_environment
from benchmarks.results import StoredRun, read_run
from benchmarks.speed_tables import arms_table, curve_table
from methods.targets.huggingface import HuggingFaceTarget
from methods.targets.loading import LoadedModel

METHODS = ("pld", "rest", "sen_greedy", "sense")
NUM_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
CONSOLE = plain_console()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the parts in order of importance, until the time is over; 1 if one failed."""
    options = parse(arguments)
    start_logging()
    end = time.monotonic() + options.seconds
    overrides = [
        f"model={options.model}",
        f"model.device={options.device}",
        f"model.dtype={options.dtype}",
    ]
    model = load_model(configs.composed(*overrides)["model"])
    device = "+".join(map(str, model.devices))
    session = describe_environment(device, None)
    name = f"{session['device_name']} ({device})"
    CONSOLE.print(f"{name}, {options.dtype}, torch {torch.__version__}")
    runs: list[StoredRun] = []
    parts: list[tuple[str, Callable[[], bool]]] = [
        ("rows per forward", lambda: row_curve(model)),
        *((name, lambda name=name: run(name, overrides, options, runs)) for name in METHODS),
        ("against generate", lambda: against_generate(model, options)),
    ]
    is_good = True
    for name, part in parts:
        if time.monotonic() > end:
            CONSOLE.print(f"{name}: left out, {options.seconds} s are over")
            continue
        start = time.monotonic()
        is_good &= part()
        CONSOLE.print(f"{name}: {time.monotonic() - start:.0f} s")
    if runs:
        print_comparison(runs)
    CONSOLE.print(f"peak memory {peak_memory(model.devices) / 1e9:.2f} GB")
    return 0 if is_good else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m", help="a choice of configs/model")
    parser.add_argument("--device", default="auto", help="as model.device")
    parser.add_argument("--dtype", default="bfloat16", help="as model.dtype")
    parser.add_argument("--limit", type=at_least_1, default=12, help="quickstart prompts")
    parser.add_argument("--max-new-tokens", type=at_least_1, default=64, help="per prompt")
    parser.add_argument("--rounds", type=at_least_1, default=3, help="of the row curve")
    parser.add_argument("--seconds", type=at_least_1, default=200, help="no part starts later")
    parser.add_argument("--results-dir", default="results/gpu_check", help="as results_dir")
    return parser.parse_args(arguments)


def row_curve(model: LoadedModel, num_rounds: int = 10) -> bool:
    """What verifying k rows costs."""
    context = long_context(encode_prompts(model.codec, 1)[0])
    curve = speed.row_curve(
        model.target, context, NUM_ROWS, num_rounds, lambda: synchronize(model.devices)
    )
    CONSOLE.print(curve_table(curve))
    return True


def run(
    name: str, overrides: Sequence[str], options: argparse.Namespace, runs: list[StoredRun]
) -> bool:
    """A method beside vanilla, with its certificate."""
    words = [
        f"method={name}", *overrides, f"limit={options.limit}",
        f"max_new_tokens={options.max_new_tokens}", f"results_dir={options.results_dir}",
        "num_generate_prompts=0", "profile=true",
    ]  # fmt: skip
    outcome = measure(configs.composed(*words))
    if outcome.path is None:
        sys.stderr.write(f"error in {name}: {outcome.message}\n")
        return False
    runs.append(read_run(outcome.path))
    return bool(runs[-1].summary["certificate"]["status"] != "failed")


def against_generate(model: LoadedModel, options: argparse.Namespace) -> bool:
    """The loop against the library's own."""
    assert isinstance(model.target, HuggingFaceTarget)
    arms = speed.generate_arms(model.target, options.max_new_tokens)
    prompts = encode_prompts(model.codec, min(4, options.limit))
    CONSOLE.print(arms_table(speed.compare(arms, prompts, 2)))
    return True


if __name__ == "__main__":
    sys.exit(main())
