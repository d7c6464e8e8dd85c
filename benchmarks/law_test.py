"""Whether two samplers follow one law: total variation between their tokens, by permutation.

Per prompt and position of the output, the tokens that an arm gave in its repeats are a sample of
that position's marginal law. The statistic is the total variation distance between the two arms'
frequencies, averaged over prompts and positions. Under one law the arms' labels may be exchanged
within each prompt; the p-value is the share of exchanges with a distance at least as large
(the observed labelling counts as one of them). It has power against laws whose marginals differ,
and no more than the number of answers gives it: `critical` is the distance that it would find.

Source: Pitman 1937 (permutation tests); Phipson and Smyth 2010 (p-values that are never 0).
Cost: one [m, m] x [m, e] product per prompt and position, m answers and e exchanges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

NUM_EXCHANGES = 999
NUM_POSITIONS = 64
"""Of the output; what differs only further on is not seen."""
ALPHA = 0.01
"""A law is called another one below this p-value: one test in a hundred that should not be."""
MIN_REPEATS = 8
"""With fewer answers per prompt, frequencies say next to nothing."""
ABSENT = -1
"""Stands at the positions behind the end of an answer: ending is an outcome as well."""

Answers = Sequence[Sequence[int]]
"""One list of token ids per repeat."""


@dataclass(frozen=True, kw_only=True)
class LawTest:
    """How one test ended.

    Attributes:
        distance: Mean total variation between the arms, in [0, 1].
        expected: What exchanged labels give on average: sampling noise alone.
        critical: What they exceed in one of a hundred exchanges: a distance that would be found.
        p_value: In (0, 1].
        num_answers: Answers per arm, of all prompts.
    """

    distance: float
    expected: float
    critical: float
    p_value: float
    num_answers: int


def compare_laws(pairs: Sequence[tuple[Answers, Answers]], *, seed: int = 0) -> LawTest:
    """Tests the answers of two arms, one pair per prompt.

    Args:
        pairs: Per prompt the answers of both arms, equally many and at least `MIN_REPEATS`.
        seed: Of the exchanges.

    Raises:
        ValueError: If there is no prompt, or a prompt has fewer or unequally many answers.
    """
    if not pairs:
        raise ValueError("a test of laws needs at least one prompt, got none")
    generator = np.random.default_rng(seed)
    total = np.zeros(NUM_EXCHANGES + 1)
    for first, second in pairs:
        if len(first) != len(second) or len(first) < MIN_REPEATS:
            raise ValueError(
                f"a test of laws needs at least {MIN_REPEATS} answers per arm and prompt, equally "
                f"many, got {len(first)} and {len(second)}"
            )
        total += _distances(_table([*first, *second]), _labels(len(first), generator))
    distances = total / len(pairs)
    observed, exchanged = float(distances[0]), distances[1:]
    # Sums of the same numbers in another order may differ in the last bits.
    num_as_large = int((exchanged >= observed - 1e-12).sum())
    return LawTest(
        distance=observed,
        expected=float(exchanged.mean()),
        critical=float(np.quantile(exchanged, 1.0 - ALPHA)),
        p_value=(1 + num_as_large) / (1 + NUM_EXCHANGES),
        num_answers=sum(len(first) for first, _ in pairs),
    )


def _table(answers: Answers) -> Int[np.ndarray, "m p"]:
    """The first tokens of each answer, `ABSENT` behind its end."""
    num_positions = min(NUM_POSITIONS, max(map(len, answers)))
    table = np.full((len(answers), num_positions), ABSENT, dtype=np.int64)
    for row, answer in zip(table, answers, strict=True):
        kept = answer[:num_positions]
        row[: len(kept)] = kept
    return table


def _labels(num_per_arm: int, generator: np.random.Generator) -> Float[np.ndarray, "m e"]:
    """+1/r for the first arm, -1/r for the second: as they are, then exchanged."""
    signs = np.repeat([1.0, -1.0], num_per_arm) / num_per_arm
    exchanged = [generator.permutation(signs) for _ in range(NUM_EXCHANGES)]
    return np.stack([signs, *exchanged], axis=1)


def _distances(
    table: Int[np.ndarray, "m p"], labels: Float[np.ndarray, "m e"]
) -> Float[np.ndarray, "e"]:
    """Per labelling, the total variation averaged over the positions."""
    total = np.zeros(labels.shape[1])
    for column in table.T:
        is_token = column[None] == np.unique(column)[:, None]
        total += 0.5 * np.abs(is_token.astype(np.float64) @ labels).sum(axis=0)
    return np.asarray(total / table.shape[1])
