"""Has SmolLM2 answer the quickstart train split: the packaged file that stores are built from.

python scripts/quickstart_answers.py     minutes; continues where it was interrupted

Reads the questions in benchmarks/datasets and the embedded model, and writes
answers-smollm2-135m.jsonl beside the questions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import benchmarks.datasets.quickstart
from benchmarks.answers import AnswerFile, answer_call
from benchmarks.corpus import AnsweredPrompts
from benchmarks.datasets import DATASETS
from methods.targets.facts import model_identity
from methods.targets.loading import HuggingFaceConfig

MODEL = "smollm2-135m"
MAX_NEW_TOKENS = 128
BATCH_SIZE = 16


def main(arguments: Sequence[str] | None = None) -> None:
    """Completes `answers-smollm2-135m.jsonl` beside the questions."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(arguments)
    model = HuggingFaceConfig(name=MODEL, name_or_path="embedded", dtype="float32").load()
    path = Path(benchmarks.datasets.quickstart.__file__).parent / f"answers-{MODEL}.jsonl"
    answers = AnswerFile(path, model=model_identity(model.facts), max_new_tokens=MAX_NEW_TOKENS)
    dataset = DATASETS.create("quickstart").load("train")
    corpus = AnsweredPrompts(dataset=dataset, codec=model.codec, answers=answers)
    corpus.generate(
        answer_call(model.target),
        batch_size=BATCH_SIZE,
        progress=lambda count: print(f"{count} answers", file=sys.stderr),
    )
    print(path)


if __name__ == "__main__":
    main()
