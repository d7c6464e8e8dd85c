"""Task scorers: how good an answer is, found by the name that a prompt's task gives.

A scorer reads a prompt and the text of an answer. It sees no model, no token and no clock.

Adding one is one module here, a registered `Scorer`; a dataset's loader names it in `Prompt.task`.
"""

from benchmarks.scoring.base import Score, Scorer
from primitives.registry import Registry

__all__ = ["SCORERS", "Score", "Scorer"]

SCORERS: Registry[Scorer] = Registry("scorer", Scorer, "benchmarks.scoring")
