"""The suffix structures on real tokens, beside the authors' library of SuffixDecoding.

python scripts/bench_suffix_tree.py
python scripts/bench_suffix_tree.py --requests 40 --prompt 8192 --output 256

Tokens are Python sources of installed packages, tokenised for the embedded model; each file is a
request whose output is fed token by token. Prints the time of learning the prompt, of `observe` and
of `propose` (candidates included), ours and that of arctic_inference's suffix cache where that is
importable (its folder suffix_decoding builds without a GPU), interleaved in one process, each in
turn first; the share of drafts that have the same score; and the targets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.bench_inputs import MILLION, corpus, rotated
from benchmarks.clock import seconds
from benchmarks.console import plain_console
from benchmarks.options import at_least_1
from primitives.interfaces import Retriever
from primitives.retrievers.suffix_automaton import SuffixAutomatonRetriever
from primitives.retrievers.suffix_tree import SuffixTreeRetriever
from primitives.types import Candidate, Context, DraftTree, StepOutcome

OBSERVE_US, PROPOSE_US, RATIO = 20.0, 1000.0, 3.0
"""The targets: microseconds per token, per step, and against the library."""
OPERATIONS = ("begin, per token", "observe, per token", "propose")
LIMIT = 16
CONSOLE = plain_console()


class Ours:
    """A retriever, told one token per step."""

    def __init__(self, retriever: Retriever) -> None:
        self.retriever = retriever

    def begin(self, ids: np.ndarray, num_prompt: int) -> None:
        """Starts a request whose first output token is pending."""
        self.ids, self.num_prompt = ids, num_prompt
        self.retriever.begin(self.context(num_prompt + 1))

    def context(self, stop: int) -> Context:
        """What may be read when `ids[stop - 1]` is pending."""
        return Context(
            ids_with_pending=self.ids[:stop], num_prompt_tokens=self.num_prompt, vocab_size=2**17
        )

    def observe(self, stop: int) -> Callable[[], None]:
        """The call that commits one token; all but the call is made before."""
        tree = DraftTree.root_only(int(self.ids[stop - 2]))
        pending_id = int(self.ids[stop - 1])
        outcome = StepOutcome(
            token_ids=self.ids[stop - 2 : stop - 1], pending_id=pending_id, tree=tree, path=(0,)
        )
        return lambda: self.retriever.observe(outcome)

    def propose(self, stop: int) -> Callable[[], float]:
        """The call that drafts; gives the score."""
        context = self.context(stop)

        def call() -> float:
            candidates: list[Candidate] = self.retriever.propose(context, LIMIT)
            return candidates[0].score if candidates else 0.0

        return call


class Arctic:
    """The authors' cache of suffix trees, with the same settings."""

    def __init__(self, cache: Any) -> None:
        self.cache, self.number = cache, 0

    def begin(self, ids: np.ndarray, num_prompt: int) -> None:
        """Ends the last request and starts one."""
        if self.number:
            self.cache.stop_request(self.number)
        self.number += 1
        self.ids = ids.astype(np.int32)
        self.cache.start_request(self.number, self.ids[:num_prompt])
        self.cache.add_active_response(self.number, self.ids[num_prompt : num_prompt + 1])

    def observe(self, stop: int) -> Callable[[], None]:
        """The call that adds one token."""
        return lambda: self.cache.add_active_response(self.number, self.ids[stop - 1 : stop])

    def propose(self, stop: int) -> Callable[[], float]:
        """The call that drafts; gives the score."""
        context = self.ids[:stop]
        return lambda: self.cache.speculate(self.number, context, max_spec_tokens=64).score


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    options = parse(arguments)
    length = options.prompt + options.output
    documents, _ = corpus(int(4.5 * MILLION))
    requests = [ids[:length].astype(np.int64) for ids in documents if len(ids) >= length]
    requests = requests[: options.requests]
    CONSOLE.print(
        f"{len(requests)} requests, {options.prompt} tokens of prompt, {options.output} of output"
    )
    arms: dict[str, Any] = {
        "suffix_tree": Ours(SuffixTreeRetriever()),
        "suffix_automaton": Ours(SuffixAutomatonRetriever()),
    }
    if (arctic := arctic_arm()) is not None:
        arms["arctic_inference"] = arctic
    times, scores = interleaved(arms, requests, options.prompt)
    CONSOLE.print(table_of(times))
    if "arctic_inference" in arms:
        ours, theirs = (np.array(scores[arm]) for arm in ("suffix_tree", "arctic_inference"))
        CONSOLE.print(
            f"same score: {np.mean(np.abs(ours - theirs) < 1e-4):.1%} of drafts; the mean is "
            f"{ours.mean():.3f}, theirs {theirs.mean():.3f} (equal counts rank otherwise)"
        )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=at_least_1, default=20, help="files, at most")
    parser.add_argument("--prompt", type=at_least_1, default=8192, help="tokens per request")
    parser.add_argument("--output", type=at_least_1, default=200, help="tokens per request")
    return parser.parse_args(arguments)


def arctic_arm() -> Arctic | None:
    """The library, if it is there."""
    try:
        from arctic_inference.suffix_decoding import SuffixDecodingCache
    except ImportError:
        CONSOLE.print("arctic_inference is not importable: only ours are timed")
        return None
    return Arctic(SuffixDecodingCache(max_tree_depth=64, max_cached_requests=100_000))


def interleaved(
    arms: dict[str, Any], requests: list[np.ndarray], num_prompt: int
) -> tuple[dict[str, list[list[float]]], dict[str, list[float]]]:
    """Microseconds by arm and operation, and scores by arm; the first request warms up."""
    times: dict[str, list[list[float]]] = {arm: [[] for _ in OPERATIONS] for arm in arms}
    scores: dict[str, list[float]] = {arm: [] for arm in arms}
    for number, ids in enumerate([requests[0], *requests]):
        for name, arm in rotated(arms.items(), number):
            begin_us = seconds(lambda: arm.begin(ids, num_prompt)) * MILLION  # noqa: B023
            if number:
                times[name][0].append(begin_us / num_prompt)
        for stop in range(num_prompt + 2, len(ids) + 1):
            for name, arm in rotated(arms.items(), stop):
                observe, propose = arm.observe(stop), arm.propose(stop)
                observe_us, propose_us = seconds(observe) * MILLION, seconds(propose) * MILLION
                if number:
                    times[name][1].append(observe_us)
                    times[name][2].append(propose_us)
                    scores[name].append(propose())
    return times, scores


def table_of(times: dict[str, list[list[float]]]) -> Table:
    """Medians and high percentiles, with ratios to the library."""
    table = Table("operation", "arm", "median us", "mean us", "99 % us", "ratio", "target")
    for place, operation in enumerate(OPERATIONS):
        theirs = times.get("arctic_inference")
        for arm, values in times.items():
            median, high = np.percentile(values[place], (50, 99))
            is_rival = theirs is not None and arm == "suffix_tree"
            limit = ("", f"≤ {OBSERVE_US:.0f} us", f"≤ {PROPOSE_US:.0f} us")[place]
            ratio = f"{median / np.median(theirs[place]):.2f}" if is_rival and theirs else ""
            targets = (limit, f"≤ {RATIO:.0f}x" if ratio else "")
            table.add_row(
                operation,
                arm,
                f"{median:.1f}",
                f"{np.mean(values[place]):.1f}",
                f"{high:.1f}",
                ratio,
                "" if arm == "arctic_inference" else ", ".join(filter(None, targets)),
            )
    return table


if __name__ == "__main__":
    sys.exit(main())
