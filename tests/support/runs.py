"""Small runs on the toy target; as a program, one run that waits in the middle to be killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from benchmarks.datasets.base import Dataset, Prompt
from benchmarks.records import Request
from benchmarks.row_log import read_requests
from benchmarks.run_spec import RunSpec
from benchmarks.runner import run
from methods.decoding import Method
from methods.sampling import SamplingLaw
from methods.targets.toy import ToyCodec, ToyTarget
from primitives.interfaces import Retriever
from primitives.retrievers.prompt_lookup import PromptLookup
from primitives.tree_builders.chain import Chain
from primitives.types import Candidate, Context, StepOutcome
from primitives.verifiers.greedy import Greedy
from primitives.verifiers.sampling import Sampling

TEXTS = (
    "the cat sat on the mat and the cat sat on the hat",
    "one two three one two three one two",
    "a rose is a rose is a rose",
    "to be or not to be that is to be",
    "all work and no play makes all work and no play",
    "row row row your boat gently down the stream",
)


@dataclass(kw_only=True)
class HookedTarget(ToyTarget):
    """A toy that calls `hook` before each prefill.

    Attributes:
        hook: Told about the prompt's ids.
    """

    hook: Callable[[Sequence[int]], None] = field(default=lambda ids: None, repr=False)

    def prefill(self, token_ids: Sequence[int], **options: Any) -> Any:
        self.hook(token_ids)
        return super().prefill(token_ids, **options)


@dataclass(kw_only=True)
class Memory(Retriever):
    """Remembers across prompts which token followed which."""

    name = "memory"
    is_cross_request = True
    _next: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        ids = [context.pending_id]
        while ids[-1] in self._next and len(ids) < 5:
            ids.append(self._next[ids[-1]])
        return [Candidate(token_ids=tuple(ids), source=self.name)] if len(ids) > 1 else []

    def observe(self, outcome: StepOutcome) -> None:
        ids = [*outcome.token_ids.tolist(), outcome.pending_id]
        self._next.update(pairwise(ids))

    def reset(self) -> None:
        self._next.clear()


def make_dataset(prompts: Sequence[Prompt] | None = None) -> Dataset:
    """Six one-turn prompts of two categories, or the given ones."""
    if prompts is None:
        prompts = [
            Prompt(prompt_id=f"p{number}", category="even" if number % 2 == 0 else "odd",
                   turns=(text,))
            for number, text in enumerate(TEXTS)
        ]  # fmt: skip
    return Dataset.from_prompts(prompts, name="toy", split="test", source="made here")


def make_method(name: str, retriever: Retriever | None, law: SamplingLaw) -> Method:
    """A chain drafter with the verifier that suits the law."""
    return Method(
        name=name,
        retriever=retriever,
        tree_builder=Chain(),
        verifier=Greedy() if law.is_greedy else Sampling(),
        node_budget=6,
        max_candidates=2,
    )


def make_spec(results_dir: Path, **changes: Any) -> RunSpec:
    """Prompt lookup on the toy; `retriever` changes the drafter, all else is a field of RunSpec."""
    law = changes.pop("law", SamplingLaw())
    retriever = changes.pop("retriever", None) or PromptLookup()
    fields: dict[str, Any] = {
        "config": {"seed": 0, "results_dir": str(results_dir), "dataset": {"name": "toy"}},
        "dataset": make_dataset(),
        "target": HookedTarget(),
        "codec": ToyCodec(),
        "method": make_method("pld", retriever, law),
        "vanilla": make_method("vanilla", None, law),
        "law": law,
        "model_name": "toy",
        "max_new_tokens": 24,
        "results_dir": results_dir,
        "progress": False,
    }
    return RunSpec(**(fields | changes))


class NoWords(ToyCodec):
    """Cannot find a token in the second prompt."""

    def encode(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        return [] if messages[-1][1] == TEXTS[1] else super().encode(messages)


def rows_of(path: Path) -> list[Request]:
    """The rows of a run folder."""
    return read_requests(path / "requests.jsonl")


def status_of(path: Path) -> dict[str, Any]:
    """What `status.json` says."""
    return json.loads((path / "status.json").read_text())


if __name__ == "__main__":
    prefills = count(1)

    def hold(ids: Sequence[int]) -> None:
        if next(prefills) == int(sys.argv[2]):
            sys.stdin.read()

    run(make_spec(Path(sys.argv[1]), target=HookedTarget(hook=hold), warmup=0))
