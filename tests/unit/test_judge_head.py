"""The judge's head: its formula, its file, and the models that it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from methods.judge_head import (
    HeadFacts,
    JudgeHeadError,
    LinearHead,
    attach_head,
    load_head,
    save_head,
)
from primitives.verifiers.greedy import Greedy
from primitives.verifiers.judge import Judge
from support.relaxed import chain
from support.toy import RefusesToDraw

MODEL = {"source": "toy", "revision": "seed-0", "files": None}
FACTS = HeadFacts(
    model=MODEL, num_prompts=2, num_labels=9, num_unimportant=4, auc=0.75, accuracy=0.6,
    threshold=0.4, rejected=0.9, recall=0.5, options={"dataset": "gsm8k"},
)  # fmt: skip


def tensors() -> dict[str, torch.Tensor]:
    return {
        "weights": torch.tensor([2.0, -1.0]),
        "bias": torch.tensor(0.5),
        "mean": torch.tensor([1.0, 0.0]),
        "scale": torch.tensor([2.0, 1.0]),
    }


def make_head() -> LinearHead:
    return LinearHead(**tensors())


def test_probability_by_hand() -> None:
    hidden = torch.tensor([[1.0, 0.0], [2.0, 3.0]], dtype=torch.float64)
    # Log odds 0.5, and 2 * (2 - 1) / 2 - 3 + 0.5 = -1.5.
    expected = [1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(1.5))]
    assert make_head()(hidden).tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="hidden states of size 2, got 3"):
        make_head()(torch.zeros(1, 3))


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    path, hidden = tmp_path / "head.safetensors", torch.randn(4, 2)
    save_head(path, make_head(), FACTS)
    head, facts = load_head(path, MODEL)
    assert facts == FACTS
    assert torch.equal(head(hidden), make_head()(hidden))
    assert [file.name for file in tmp_path.iterdir()] == ["head.safetensors"]


def test_a_verifier_gets_the_head_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    save_head(path, make_head(), FACTS)
    verifier = Judge(head=str(path), threshold=0.6)
    facts = attach_head(verifier, MODEL)
    assert facts is not None
    assert (facts["auc"], len(facts["content_hash"])) == (0.75, 16)
    # The argmax is 0; the head gives token 1 the odds exp(0.5), 0.62.
    logits, hidden = torch.tensor([[1.0, 0.5]] * 2), torch.tensor([[1.0, 0.0]] * 2)
    verdict = verifier.verify(chain(1), logits[0], logits, RefusesToDraw(), hidden=hidden)
    assert verdict.reasons == ("pending", "judge")


def test_a_head_is_needed_or_left_alone() -> None:
    assert attach_head(Greedy(), MODEL) is None
    with pytest.raises(JudgeHeadError, match=r"verifier\.head is null: add verifier\.head=FILE"):
        attach_head(Judge(), MODEL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"revision": "seed-1"}, "model of revision 'seed-0', the target model has 'seed-1'"),
        ({"files": "abc"}, "model of files None, the target model has 'abc'"),
        ({"dtype": "float16"}, "model of dtype None, the target model has 'float16'"),
    ],
)
def test_other_models_are_refused(change: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    save_head(path, make_head(), FACTS)
    with pytest.raises(JudgeHeadError, match=message):
        load_head(path, {**MODEL, **change})


def facts_text(**changes: Any) -> str:
    return json.dumps({**dataclasses.asdict(FACTS), **changes})


@pytest.mark.parametrize(
    "change",
    [
        {"weights": torch.tensor([1.0, math.nan])},
        {"mean": torch.zeros(3)},
        {"scale": torch.tensor([1.0, 0.0])},
        {"bias": torch.zeros(1)},
    ],
)
def test_unsound_numbers_are_refused(change: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    save_file({**tensors(), **change}, path, {"facts": facts_text()})
    with pytest.raises(JudgeHeadError, match="must be finite, of one size, and scale above 0"):
        load_head(path, MODEL)


def test_a_missing_file_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(JudgeHeadError, match=r"no such file; scripts/train_judge\.py trains"):
        load_head(tmp_path / "none", MODEL)


@pytest.mark.parametrize(
    ("saved", "metadata", "message"),
    [
        (None, None, "is no judge's head"),
        (tensors(), None, r"is no judge's head \('facts'\)"),
        ({"weights": torch.zeros(2)}, {"facts": facts_text()}, "is no judge's head"),
        (tensors(), {"facts": "{"}, "is no judge's head"),
        (tensors(), {"facts": "[]"}, "is no judge's head"),
        (tensors(), {"facts": facts_text(age=3)}, "is no judge's head .*age"),
        (tensors(), {"facts": facts_text(format_version=2)}, "format 2, this version reads 1"),
    ],
)
def test_other_files_are_refused(
    saved: dict[str, torch.Tensor] | None,
    metadata: dict[str, str] | None,
    message: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / "head.safetensors"
    if saved is None:
        path.write_bytes(b"not a tensor")
    else:
        save_file(saved, path, metadata)
    with pytest.raises(JudgeHeadError, match=message):
        load_head(path, MODEL)
