"""What a step of every retriever costs, beside a one-row forward of SmolLM2 in the same process.

python scripts/bench_retrievers.py
python scripts/bench_retrievers.py --methods rest sense --requests 20

Tokens are Python sources of installed packages, tokenised for the embedded model; each file is a
request whose output is fed one token per step, and retrievers take turns at every request. Each is
configured as its method (`lookahead_pool`, which no method has, as its own file) and searches the
datastore of the quickstart dataset, built on first use. What a target would tell beside the tokens
(logits, states, most probable tokens) is drawn at random: no forward is made while steps are timed.
Retrievers that run a draft model are left out: their time is that of its forwards, and
`scripts/compare.py --details` shows it, as it shows what all others take of a run, where a forward
empties the processor's caches between two steps. The target of `observe` is that of automata, trees
and pools: to keep a state takes a few tensor operations, whose calls alone cost as much.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.table import Table

import configs
from benchmarks import speed
from benchmarks.bench_inputs import MILLION, corpus, encode_prompts, long_context
from benchmarks.clock import seconds
from benchmarks.console import plain_console
from benchmarks.datastores import provide_datastore
from benchmarks.options import at_least_1
from methods.build import build_method, build_model
from methods.sampling import SamplingLaw
from methods.targets.loading import LoadedModel
from primitives.interfaces import Retriever
from primitives.types import PROMPT_TOP_K, Context, DraftTree, StepOutcome

OBSERVE_US, PROPOSE_SHARE = 20.0, 0.03
"""The targets: microseconds per token, and the share of a one-row forward."""
HIDDEN_SIZE = 576
CONSOLE = plain_console()
MODEL = ("model=smollm2-135m", "model.device=cpu")
EXTRA = {"lookahead_pool": ("method=pld", "retriever=lookahead_pool")}


@dataclass
class Arm:
    """One retriever and its times in microseconds."""

    retriever: Retriever
    limit: int
    begin: list[float] = field(default_factory=list)
    observe: list[float] = field(default_factory=list)
    propose: list[float] = field(default_factory=list)


class Telling:
    """What a target would tell of a text, drawn once from a seed.

    Args:
        ids: The text, shape [t].
        num_prompt: How much of it is the prompt, in tokens.
        vocab_size: Ids are below.
    """

    def __init__(self, ids: np.ndarray, num_prompt: int, vocab_size: int) -> None:
        self.ids, self.num_prompt, self.vocab_size = ids, num_prompt, vocab_size
        self._draw = torch.Generator().manual_seed(len(ids))
        self._logits = 4.0 * torch.randn(8, vocab_size, generator=self._draw)
        self._states = torch.randn(num_prompt, HIDDEN_SIZE, generator=self._draw)

    def context(self, retriever: Retriever, stop: int) -> Context:
        """What may be read when `ids[stop - 1]` is pending."""
        needs, is_first = retriever.needs, stop == self.num_prompt + 1
        state = self._states[stop % self.num_prompt]
        return Context(
            ids_with_pending=self.ids[:stop],
            num_prompt_tokens=self.num_prompt,
            vocab_size=self.vocab_size,
            last_logits=self._logits[stop % 8] if "last_logits" in needs else None,
            last_hidden=state if "hidden" in needs else None,
            prompt_hidden=self._states if is_first and "prompt_hidden" in needs else None,
            prompt_layer_hidden=self._states if is_first and "layer_hidden" in needs else None,
            prompt_top_ids=(
                self._top_ids(self.num_prompt, PROMPT_TOP_K)
                if is_first and "prompt_top_ids" in needs
                else None
            ),
        )

    def outcome(self, retriever: Retriever, stop: int) -> StepOutcome:
        """The step that commits `ids[stop - 2]`, when `ids[stop - 1]` becomes pending."""
        needs = retriever.needs
        row = self._states[(stop - 1) % self.num_prompt][None]
        return StepOutcome(
            token_ids=self.ids[stop - 2 : stop - 1],
            pending_id=int(self.ids[stop - 1]),
            tree=DraftTree.root_only(int(self.ids[stop - 2])),
            path=(0,),
            hidden=row if "hidden" in needs else None,
            layer_hidden=row if "layer_hidden" in needs else None,
            node_top_ids=(
                self._top_ids(1, retriever.num_top_ids) if "node_top_ids" in needs else None
            ),
        )

    def _top_ids(self, num_rows: int, num_ids: int) -> np.ndarray:
        shape = (num_rows, num_ids)
        return torch.randint(self.vocab_size, shape, generator=self._draw).numpy()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    model = build_model(configs.composed(*MODEL)["model"])
    arms = dict(build_arms(model, options.methods))
    context = long_context(encode_prompts(model.codec, 1)[0])
    forward_ms = speed.row_curve(model.target, context, (1,), 20)[1]
    length = options.prompt + options.output
    documents, vocab_size = corpus(int(4.5 * MILLION))
    texts = [ids[:length].astype(np.int64) for ids in documents if len(ids) >= length]
    texts = texts[: options.requests]
    CONSOLE.print(
        f"{len(texts)} requests, {options.prompt} tokens of prompt, {options.output} of output; "
        f"{options.threads} threads; a one-row forward takes {forward_ms:.1f} ms"
    )
    for number, ids in enumerate([texts[0], *texts]):
        measure(arms, Telling(ids, options.prompt, vocab_size), is_warm_up=number == 0)
    CONSOLE.print(table_of(arms, 1000 * forward_ms))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    methods = [name for name in configs.choices("method") if name != "vanilla"]
    parser.add_argument("--methods", nargs="*", choices=methods, default=methods)
    parser.add_argument("--requests", type=at_least_1, default=8, help="files, at most")
    parser.add_argument("--prompt", type=at_least_1, default=8192, help="tokens per request")
    parser.add_argument("--output", type=at_least_1, default=64, help="tokens per request")
    parser.add_argument("--threads", type=at_least_1, default=2, help="CPU threads")
    return parser.parse_args(arguments)


def build_arms(model: LoadedModel, methods: Sequence[str]) -> Iterator[tuple[str, Arm]]:
    """Each retriever once, as the first method that has it configures it."""
    seen: list[dict[str, Any]] = []
    words = {name: (f"method={name}",) for name in methods} | EXTRA
    for name, chosen in words.items():
        config = configs.composed(*MODEL, *chosen)
        if config["retriever"] in seen or config["draft_model"]["kind"] is not None:
            continue
        seen.append(config["retriever"])
        method = build_method(config, SamplingLaw())
        assert method.retriever is not None
        if config["datastore"]["kind"] is not None:
            method.retriever.attach(provide_datastore(config, model).store)
        kind = config["retriever"]["name"]
        yield (
            (kind if kind == name else f"{kind} ({name})"),
            Arm(method.retriever, method.max_candidates),
        )


def measure(arms: dict[str, Arm], telling: Telling, *, is_warm_up: bool) -> None:
    """One request through all retrievers."""
    first = telling.num_prompt + 1
    for arm in arms.values():
        retriever, limit = arm.retriever, arm.limit
        context = telling.context(retriever, first)
        elapsed = seconds(lambda: retriever.begin(context))  # noqa: B023
        if not is_warm_up:
            arm.begin.append(MILLION * elapsed)
        for stop in range(first + 1, len(telling.ids) + 1):
            outcome = telling.outcome(retriever, stop)
            observed = seconds(lambda: retriever.observe(outcome))  # noqa: B023
            context = telling.context(retriever, stop)
            proposed = seconds(lambda: retriever.propose(context, limit))  # noqa: B023
            if not is_warm_up:
                arm.observe.append(MILLION * observed)
                arm.propose.append(MILLION * proposed)


def table_of(arms: dict[str, Arm], forward_us: float) -> Table:
    """Medians, with the targets that are missed."""
    table = Table(
        "retriever", "begin ms", "observe us", "propose us", "99 %", "of a forward", "target"
    )
    for name, arm in arms.items():
        observe, propose = np.median(arm.observe), np.median(arm.propose)
        share = propose / forward_us
        missed = [
            *(["observe"] if observe > OBSERVE_US else []),
            *(["propose"] if share > PROPOSE_SHARE else []),
        ]
        table.add_row(
            name,
            f"{np.median(arm.begin) / 1000:.1f}",
            f"{observe:.1f}",
            f"{propose:.0f}",
            f"{np.percentile(arm.propose, 99):.0f}",
            f"{share:.1%}",
            "misses " + ", ".join(missed) if missed else "met",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
