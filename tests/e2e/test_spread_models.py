"""Models that do not fit one device: split over processes, placed by accelerate, or quantised."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from support.processes import PATIENCE_S
from support.runs import rows_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent.parent
WORDS = [*"abcdefghijklmnopqrst"]
NUM_PROCESSES = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small random model that two processes can share, with a tokenizer and a question file."""
    folder = tmp_path_factory.mktemp("spread")
    ids = {word: number for number, word in enumerate(["<s>", "</s>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder / "model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(ids) + len(ids) % 2, hidden_size=64, intermediate_size=64,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():  # Larger weights, so that its answers have a shape.
        parameter.data *= 3.0
    model.save_pretrained(folder / "model")
    questions = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(3)]
    lines = [f'{{"id": "{i}", "turns": ["{text}"]}}' for i, text in enumerate(questions)]
    (folder / "questions.jsonl").write_text("\n".join(lines))
    return folder


def answers(folder, name, *options, launcher=(sys.executable,)):
    """Output ids by prompt and arm of a run with these options."""
    command = [
        *launcher, str(ROOT / "run.py"), "method=pld", "model=hf", "max_new_tokens=24",
        f"model.name_or_path={folder}/model", "dataset=jsonl",
        f"dataset.path={folder}/questions.jsonl", "warmup=0", "num_threads=1", "progress=false",
        f"results_dir={folder}/{name}", *options,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("pld on jsonl") == 1, done.stdout
    (path,) = (folder / name).glob("*/*/*/*")
    return {row.key: row.turns[0].output_ids for row in rows_of(path)}


@pytest.fixture(scope="module")
def alone(folder):
    """The answers of one process."""
    found = answers(folder, "alone")
    assert len({found[key] for key in found}) > 1
    return found


def test_a_model_split_over_processes_answers_as_in_one(folder, alone):
    torchrun = (
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={NUM_PROCESSES}",
        "--standalone",
    )  # fmt: skip
    options = ("model.tp_plan=auto", "model.device=cpu")
    assert answers(folder, "split", *options, launcher=torchrun) == alone
    # The same command again finds a finished run, on every rank.
    assert answers(folder, "split", *options, launcher=torchrun) == alone


def test_splitting_needs_processes(folder):
    with pytest.raises(AssertionError, match="torchrun --nproc-per-node 2"):
        answers(folder, "refused", "model.tp_plan=auto")


def test_a_model_placed_by_accelerate_answers_as_in_one(folder, alone):
    assert answers(folder, "placed", "model.device_map=auto", "model.prepack=false") == alone


@pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="the extra `bnb` is not installed"
)
def test_a_model_in_4_bit_runs(folder, alone):
    found = answers(folder, "quantised", "model.quantization=bnb-4bit", "model.device=cpu")
    assert found.keys() == alone.keys()
