"""Speed of the decode loop on this machine, per variant of the embedded model's linear layers.

python scripts/bench.py
python scripts/bench.py --variants prepacked int8 --rounds 7

Prints, for each variant: tokens/s of vanilla and prompt lookup through this project's loop and
through transformers' `generate` (same ids wanted, medians of interleaved rounds), the share of a
step per phase, the time of a k-row forward relative to a 1-row forward, and peak memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks import speed
from benchmarks.bench_inputs import encode_prompts, long_context
from benchmarks.console import plain_console
from benchmarks.datastores import provide_datastore
from benchmarks.machine import peak_memory
from benchmarks.options import at_least_1
from benchmarks.speed_tables import arms_table, curve_table, phase_line
from configs import composed
from methods.build import build_method, build_model
from methods.sampling import SamplingLaw
from methods.targets.huggingface import HuggingFaceTarget
from methods.targets.loading import LoadedModel

VARIANTS: dict[str, dict[str, Any]] = {
    "stock": {"prepack": False},
    "prepacked": {"prepack": True},
    "int8": {"quantization": "int8"},
}
NUM_ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
PREFILL_LENGTHS = (1024, 2048, 4096)
MIB = 2**20
CONSOLE = plain_console()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    CONSOLE.print(
        f"SmolLM2-135M-Instruct on CPU, {options.threads} threads, {options.prompts} quickstart "
        f"prompts x {options.tokens} tokens, {options.rounds} interleaved rounds"
    )
    for variant in options.variants:
        bench_variant(variant, options)
    bench_against_stock(options)
    bench_datastore_methods(options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--prompts", type=at_least_1, default=3, help="quickstart prompts")
    parser.add_argument("--tokens", type=at_least_1, default=64, help="output budget per prompt")
    parser.add_argument("--rounds", type=at_least_1, default=5, help="interleaved rounds")
    parser.add_argument("--threads", type=at_least_1, default=2, help="CPU threads")
    return parser.parse_args(arguments)


def bench_variant(variant: str, options: argparse.Namespace) -> None:
    """All measurements of one variant, in one process on one model object."""
    model, target = load(variant)
    prompts = encode_prompts(model.codec, options.prompts)
    CONSOLE.rule(f"{variant} linear layers")
    arms = speed.generate_arms(target, options.tokens)
    CONSOLE.print(arms_table(speed.compare(arms, prompts, options.rounds)))
    lookup = speed.prompt_lookup_method()
    shares = speed.phase_shares(target, lookup, prompts, options.tokens)
    CONSOLE.print(phase_line(lookup.name, shares))
    context = long_context(prompts[0])
    CONSOLE.print(curve_table(speed.row_curve(target, context, NUM_ROWS, 2 * options.rounds)))
    peaks = speed.prefill_peaks(target, PREFILL_LENGTHS, lambda: peak_memory(model.devices))
    parts = "  ".join(f"{length} tokens {peak / MIB:.0f}" for length, peak in peaks.items())
    CONSOLE.print(f"peak memory of the process in MiB, after a prefill of: {parts}")


def bench_against_stock(options: argparse.Namespace) -> None:
    """This project as it runs by default against transformers as it comes, in one process."""
    model, target = load("prepacked")
    ours = speed.generate_arms(target, options.tokens)
    theirs = speed.generate_arms(load("stock")[1], options.tokens)
    CONSOLE.rule("this loop on prepacked layers, generate on stock layers")
    arms = {name: (theirs if "generate" in name else ours)[name] for name in ours}
    prompts = encode_prompts(model.codec, options.prompts)
    CONSOLE.print(arms_table(speed.compare(arms, prompts, options.rounds)))


def bench_datastore_methods(options: argparse.Namespace) -> None:
    """Where the time of a step goes in methods that search a datastore; on prepacked layers."""
    CONSOLE.rule("methods with datastores")
    model, target = load("prepacked")
    for name in ("rest", "dresd", "sense"):
        config = composed(f"method={name}", "model=smollm2-135m", "model.device=cpu")
        method = build_method(config, SamplingLaw())
        assert method.retriever is not None
        method.retriever.attach(provide_datastore(config, model).store)
        prompts = encode_prompts(model.codec, options.prompts)
        CONSOLE.print(phase_line(name, speed.phase_shares(target, method, prompts, options.tokens)))


def load(variant: str) -> tuple[LoadedModel, HuggingFaceTarget]:
    """The embedded model in one variant."""
    fields = {"kind": "huggingface", "name_or_path": "embedded", "dtype": "float32"}
    model = build_model({**fields, "device": "cpu", **VARIANTS[variant]})
    assert isinstance(model.target, HuggingFaceTarget)
    return model, model.target


if __name__ == "__main__":
    main()
