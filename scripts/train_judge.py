"""Trains the head of verifier `judge` on labels that the target model makes itself (AutoJudge).

python scripts/train_judge.py --output judge.safetensors                  SmolLM2 on quickstart
python scripts/train_judge.py --output judge.safetensors --alternatives top2 dataset=gsm8k limit=200
python scripts/train_judge.py --output judge.safetensors method=sps draft_model=llama3.2-1b \\
    model=llama3-8b dataset=gsm8k limit=500 max_new_tokens=256

Words without hyphens are overrides as for run.py; unless told otherwise: method=pld, the train
split, 32 prompts, 64 tokens. The method's retriever drafts. Where a draft disagrees with the
target, the target finishes the answer behind the draft's token: one answer per mismatch. The
mismatch did no harm if the answer is still right. `dataset=gsm8k`: still the same number; short
answers and programs: still right; all others: still like the target's own answer by ROUGE-L.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

import configs
from benchmarks.answer_rules import AnswerRule, tells_right_from_wrong
from benchmarks.cli import build_spec, start_logging
from benchmarks.files import RunFolderError
from benchmarks.judge_labels import LabelMiner, Mismatch
from benchmarks.judge_training import HeldOut, Labels, train
from benchmarks.options import at_least_1, output_file
from benchmarks.run_spec import RunSpec
from benchmarks.scoring.scores import check_tasks
from methods.judge_head import HeadFacts, save_head
from methods.targets.errors import ModelUnavailable
from methods.targets.facts import model_identity

DEFAULTS = ("method=pld", "dataset.split=train", "limit=32", "max_new_tokens=64")
FIXED = ("verifier=greedy",)
KEPT = ("method", "retriever", "tree_builder", "datastore", "draft_model", "model")
"""Groups whose overrides the command that uses the head repeats."""
STAND_IN = """\
WARNING: dataset={name} does not say which answers are right. Labels rest on likeness instead: a
mismatch counts as unimportant if ROUGE-L of the new answer against the target's own is at least
{min_rouge:g}. That is a stand-in of this project, not what AutoJudge asks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains and writes a head; a user's mistake is one message, not a traceback."""
    options = parse(arguments)
    start_logging()
    try:
        spec = _load(options.overrides)
        mined = _mine(spec, options)
        labels = Labels.of(mined)
        head, l2, held_out = train(labels, rejected=options.reject)
        facts = _facts(spec, options, labels, l2, held_out)
        save_head(options.output, head, facts)
    except (
        ValueError, OSError, ModelUnavailable, RunFolderError,
        HydraException, OmegaConfBaseException,
    ) as error:  # fmt: skip
        sys.stderr.write(f"error: {str(error).strip()}\n")
        return 2
    _report(options.overrides, facts, options.output)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", help="as for run.py, e.g. model=llama3-8b")
    parser.add_argument("--output", type=output_file, required=True, help="file of the head")
    parser.add_argument(
        "--alternatives", choices=("drafts", "top2"), default="drafts",
        help="what is tried: what the method drafts, or the target's second most probable token",
    )  # fmt: skip
    parser.add_argument(
        "--compare", choices=("own", "reference"), default="own",
        help="gsm8k: whether the number must be the target's own, or the right one",
    )  # fmt: skip
    parser.add_argument(
        "--max-mismatches", type=at_least_1, default=16, help="answers per prompt, spread over it"
    )
    parser.add_argument(
        "--rouge", type=_share, default=0.8, help="least likeness where nothing says what is right"
    )
    parser.add_argument(
        "--reject", type=_share, default=0.9, help="important mismatches that the threshold rejects"
    )
    return parser.parse_intermixed_args(arguments)


def _share(text: str) -> float:
    """A number in [0, 1].

    Raises:
        ArgumentTypeError: If it is anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number in [0, 1], got {text!r}")
    return value


def _load(overrides: Sequence[str]) -> RunSpec:
    """Model, dataset and retriever.

    Raises:
        ValueError: If a choice or a value is wrong, or decoding is not greedy.
    """
    if unknown := configs.unknown_choice(overrides):
        raise ValueError(unknown)
    spec = build_spec(configs.composed(*configs.with_defaults(overrides, DEFAULTS), *FIXED))
    if not spec.law.is_greedy:
        raise ValueError(
            f"temperature={spec.law.temperature}: labels are of greedy answers, leave it at 0"
        )
    check_tasks(spec.dataset)
    return spec


def _mine(spec: RunSpec, options: argparse.Namespace) -> list[list[Mismatch]]:
    """Mismatches prompt by prompt; tells how it goes."""
    drafter = None if options.alternatives == "top2" else spec.method.retriever
    if drafter is None and options.alternatives == "drafts":
        raise ValueError(
            f"method={spec.method.name} drafts nothing: take another one, or --alternatives top2"
        )
    prompts = spec.dataset.prompts
    if not all(map(tells_right_from_wrong, prompts)):
        notice = STAND_IN.format(name=spec.dataset.name, min_rouge=options.rouge)
        print(notice, file=sys.stderr)
    miner = LabelMiner(
        target=spec.target,
        codec=spec.codec,
        drafter=drafter,
        rule=AnswerRule(
            compare=options.compare,
            min_rouge=options.rouge,
            allow_code_execution=spec.allow_code_execution,
        ),
        max_new_tokens=spec.max_new_tokens,
        max_mismatches=options.max_mismatches,
        max_candidates=spec.method.max_candidates,
    )
    mined: list[list[Mismatch]] = []
    num_silent = 0
    for number, prompt in enumerate(prompts, start=1):
        labels = miner.mine(prompt)
        num_silent += labels is None
        mined.append(labels or [])
        every = [label for labels in mined for label in labels]
        num_important = sum(label.is_important for label in every)
        print(
            f"{number}/{len(prompts)} prompts: {len(every)} mismatches, {num_important} important, "
            f"{num_silent} answers with nothing to keep",
            file=sys.stderr,
        )
    return mined


def _facts(
    spec: RunSpec, options: argparse.Namespace, labels: Labels, l2: float, held_out: HeldOut
) -> HeadFacts:
    return HeadFacts(
        model=model_identity(spec.model_hashes),
        num_prompts=len({*labels.groups.tolist()}),
        num_labels=len(labels.is_fine),
        num_unimportant=int(labels.is_fine.sum()),
        **vars(held_out),
        options={
            "dataset": spec.dataset.name,
            "split": spec.dataset.split,
            "dataset_hash": spec.dataset.content_hash,
            "method": spec.method.name if options.alternatives == "drafts" else None,
            "alternatives": options.alternatives,
            "compare": options.compare,
            "min_rouge": options.rouge,
            "max_new_tokens": spec.max_new_tokens,
            "max_mismatches": options.max_mismatches,
            "l2": l2,
        },
    )


def _report(overrides: Sequence[str], facts: HeadFacts, output: Path) -> None:
    """What is known about the head, and the command that uses it."""
    num, num_fine = facts.num_labels, facts.num_unimportant
    commoner = max(num_fine, num - num_fine) / num
    # Rounded up: a threshold a little lower would keep one important mismatch more.
    threshold = math.ceil(facts.threshold * 1e4) / 1e4
    print(f"{num} mismatches of {facts.num_prompts} prompts, {num_fine} of them unimportant")
    print(f"on prompts not trained on: AUC {facts.auc:.3f}")
    print(f"  accuracy {facts.accuracy:.3f} at even odds ({commoner:.3f} by the commoner kind)")
    print(f"  a threshold chosen on others rejects {facts.rejected:.0%} of important mismatches")
    print(f"  and keeps {facts.recall:.0%} of unimportant ones")
    print(f"threshold chosen on all of them: {threshold:.4f}")
    words = configs.with_defaults(overrides, DEFAULTS)
    words = [word for word in words if re.split("[.=]", word)[0] in KEPT]
    own = f"verifier=judge verifier.head={output} verifier.threshold={threshold:.4f}"
    print(" ".join(["python run.py", *words, own]))


if __name__ == "__main__":
    sys.exit(main())
