"""Exact laws: a random source that walks through every outcome with its weight.

`exact_law(run)` calls `run(random)` once per sequence of random choices, depth first, and adds up
the weight of each result. Nothing is sampled, so an assertion on the law may ask for 1e-12:

    law = exact_law(lambda random: (random.bernoulli(0.25), random.categorical(weights)))
    assert_same_law(law, {(True, 0): 0.1, ...})

`run` must make the same choices whenever it gets the same answers; a component with state of its
own has to be made anew, or reset, inside `run`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

Outcome = TypeVar("Outcome", bound=Hashable)


@dataclass
class EnumeratingRandom:
    """Replays a script of choices, then takes the first possible outcome of every further one.

    Attributes:
        script: Positions of the outcomes to take, one per choice.
        weight: Probability of what was taken so far.
        taken: The script, continued by what was taken.
        num_options: How many outcomes each choice had (impossible ones are left out).
    """

    script: tuple[int, ...] = ()
    weight: float = 1.0
    taken: list[int] = field(default_factory=list)
    num_options: list[int] = field(default_factory=list)

    def categorical(self, weights: Tensor) -> int:
        total = float(weights.double().sum())
        assert 0 < total < float("inf"), f"weights must have a positive finite sum, got {total}"
        assert float(weights.min()) >= 0, f"weights must be non-negative, got {weights.tolist()}"
        probs = (weights.double() / total).tolist()
        return self._take([(index, prob) for index, prob in enumerate(probs) if prob > 0])

    def bernoulli(self, probability: float) -> bool:
        probability = min(max(probability, 0.0), 1.0)
        options = [(True, probability), (False, 1 - probability)]
        return self._take([(value, prob) for value, prob in options if prob > 0])

    def _take(self, options):
        depth = len(self.taken)
        choice = self.script[depth] if depth < len(self.script) else 0
        self.taken.append(choice)
        self.num_options.append(len(options))
        value, prob = options[choice]
        self.weight *= prob
        return value


def exact_law(run: Callable[[EnumeratingRandom], Outcome]) -> dict[Outcome, float]:
    """The probability of every result of `run`."""
    law: dict[Outcome, float] = defaultdict(float)
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        random = EnumeratingRandom(scripts.pop())
        law[run(random)] += random.weight
        for depth in range(len(random.script), len(random.taken)):
            prefix = tuple(random.taken[:depth])
            scripts += [(*prefix, choice) for choice in range(1, random.num_options[depth])]
    return dict(law)


def assert_same_law(
    actual: Mapping[Outcome, float], expected: Mapping[Outcome, float], tolerance: float = 1e-12
) -> None:
    """Fails with the outcome where the two laws differ most."""

    def gap(outcome: Outcome) -> float:
        return abs(actual.get(outcome, 0.0) - expected.get(outcome, 0.0))

    worst = max({*actual, *expected}, key=gap)
    assert gap(worst) <= tolerance, (
        f"P({worst}) is {actual.get(worst, 0.0)}, expected {expected.get(worst, 0.0)}"
    )
