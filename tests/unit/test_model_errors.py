"""Messages for models that do not load: what the libraries raise, and what users read."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import errors as hub
from transformers import LlamaConfig

from methods.targets import tensor_parallel
from methods.targets.errors import ModelUnavailable, explain_load_error


@pytest.mark.parametrize(("num_processes", "is_split"), [(1, True), (3, True), (2, False)])
def test_heads_are_dealt_out_evenly(
    num_processes: int, is_split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SmolLM2 has 9 query heads and 3 of keys and values."""
    monkeypatch.setattr(tensor_parallel, "world_size", lambda: num_processes)
    config = LlamaConfig(hidden_size=576, num_attention_heads=9, num_key_value_heads=3)
    if is_split:
        tensor_parallel.check_heads(config)
        return
    with pytest.raises(ValueError, match=r"9 \(num_attention_heads\) cannot .* over 2 processes"):
        tensor_parallel.check_heads(config)


def _http(kind: type[Any], status: int) -> Exception:
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    error = kind(f"{status} Client Error.", response=response)
    assert isinstance(error, Exception)
    return error


def _transport(name: str) -> Exception:
    """An error of whatever HTTP client the installed huggingface_hub uses."""
    client = importlib.import_module(hub.HTTPError.__module__.partition(".")[0])
    error = getattr(client, name)("Name or service not known")
    assert isinstance(error, Exception)
    return error


def _wrapped(cause: BaseException, text: str = "wrapped by transformers") -> Exception:
    error = OSError(text)
    error.__cause__ = cause
    return error


def _gated() -> Exception:
    return _wrapped(_http(hub.GatedRepoError, 403), "You are trying to access a gated repo.")


HUB_FAULTS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "gated": (_gated, r"gated.*licence.*hf auth login"),
    "forbidden": (lambda: _wrapped(_http(hub.HfHubHTTPError, 403)), r"gated.*hf auth login"),
    "bad token": (lambda: _wrapped(_http(hub.HfHubHTTPError, 401)), r"valid token"),
    "not found": (
        lambda: _wrapped(_http(hub.RepositoryNotFoundError, 404)),
        r"no model of that name.*spelling",
    ),
    "revision": (lambda: _wrapped(_http(hub.RevisionNotFoundError, 404)), r"model\.revision"),
    "no file": (lambda: _wrapped(_http(hub.RemoteEntryNotFoundError, 404)), r"config\.json"),
    "no token": (lambda: hub.LocalTokenNotFoundError("token needed"), r"hf auth login"),
    "not cached": (
        lambda: _wrapped(hub.LocalEntryNotFoundError("not in the local cache")),
        r"cannot be reached.*hf download owner/name",
    ),
    "offline mode": (lambda: hub.OfflineModeIsEnabled("offline"), r"hf download owner/name"),
    "no route": (lambda: _transport("ConnectError"), r"hf download"),
    "timeout": (lambda: _transport("ReadTimeout"), r"connection"),
    "busy": (lambda: _wrapped(_http(hub.HfHubHTTPError, 503)), r"HTTP 503.*later"),
    "disk full": (lambda: OSError(28, "No space left on device"), r"HF_HOME"),
    "no package": (lambda: ImportError("needs `sentencepiece`"), r"sentencepiece"),
    "no accelerate": (
        lambda: ValueError("Using a `device_map` requires `accelerate`. You can install it"),
        r"pip install accelerate",
    ),
    "too new": (
        lambda: ValueError(
            "The checkpoint you are trying to load has model type `x` but Transformers does not "
            "recognize this architecture."
        ),
        r"[Uu]pgrade transformers",
    ),
    "old tokenizer": (
        lambda: ValueError("Couldn't instantiate the backend tokenizer from one of: "),
        r"pip install sentencepiece",
    ),
}


@pytest.mark.parametrize("fault", HUB_FAULTS)
def test_hub_faults(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    make, expected = HUB_FAULTS[fault]
    explained = explain_load_error("owner/name", make())
    assert explained is not None
    assert str(explained).startswith("cannot load the model owner/name: ")
    with pytest.raises(ModelUnavailable, match=expected):
        raise explained
    assert "\n" not in str(explained)


def test_offline_by_wish_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    explained = explain_load_error("owner/name", hub.LocalEntryNotFoundError("not cached"))
    assert "HF_HUB_OFFLINE is set" in str(explained)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("CUDA error: device-side assert triggered"),
        AttributeError("module 'torch' has no attribute 'float13'"),
        KeyError("added_tokens"),
        ValueError("something new"),
    ],
)
def test_unknown_and_memory_errors_are_not_explained_away(error: Exception) -> None:
    assert explain_load_error("owner/name", error) is None


def _tiny(folder: Path) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = LlamaConfig(num_attention_heads=2, num_key_value_heads=2, vocab_size=32, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def _edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _to_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x" * 5000)


def _break_remote(folder: Path) -> None:
    code = {"AutoConfig": "configuration_x.X", "AutoModelForCausalLM": "modeling_x.X"}
    _edit_config(folder, model_type="x-new", auto_map=code)


FOLDER_FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), r"has no config\.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"has no weights"),
    "cut weights": (_cut, r"damaged or cut short.*Copy it again"),
    "text pointer": (
        lambda f: (f / "model.safetensors").write_text("version 1\noid sha256:abc\n"),
        r"damaged or cut short",
    ),
    "garbage pickle": (_to_pickle, r"damaged or cut short"),
    "garbage config": (lambda f: (f / "config.json").write_text("{no"), r"damaged or cut short"),
    "unknown architecture": (lambda f: _edit_config(f, model_type="x-new"), r"architecture"),
    "no model type": (lambda f: (f / "config.json").write_text("{}"), r"model_type"),
    "no language model": (lambda f: _edit_config(f, model_type="vit"), r"causal language model"),
    "remote code": (_break_remote, r"model\.trust_remote_code=true"),
    "wrong shapes": (lambda f: _edit_config(f, hidden_size=32), r"shapes"),
}


@pytest.mark.parametrize("fault", FOLDER_FAULTS)
@pytest.mark.filterwarnings("ignore")
def test_folder_faults(fault: str, tmp_path: Path) -> None:
    """What the installed transformers really raises for broken folders."""
    from transformers import AutoModelForCausalLM

    spoil, expected = FOLDER_FAULTS[fault]
    spoil(_tiny(tmp_path))
    with pytest.raises(Exception) as caught:  # noqa: PT011
        AutoModelForCausalLM.from_pretrained(str(tmp_path), trust_remote_code=False)
    explained = explain_load_error(str(tmp_path), caught.value)
    assert explained is not None, repr(caught.value)
    with pytest.raises(ModelUnavailable, match=expected):
        raise explained


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/no/such/folder", "there is no folder /no/such/folder"),
        ("./no/such", r"there is no folder .*/no/such\. Check model\.name_or_path"),
        ("a b/c d/e", "neither an existing folder nor a possible name"),
    ],
)
def test_paths_that_are_not_there(name: str, expected: str) -> None:
    from transformers import AutoConfig

    with pytest.raises(OSError, match="Repo id") as caught:
        AutoConfig.from_pretrained(name)
    with pytest.raises(ModelUnavailable, match=expected):
        raise explain_load_error(name, caught.value) or caught.value


def test_a_file_instead_of_its_folder(tmp_path: Path) -> None:
    from transformers import AutoConfig

    name = str(_tiny(tmp_path) / "model.safetensors")
    with pytest.raises(OSError, match="JSON") as caught:
        AutoConfig.from_pretrained(name)
    assert "it is a file" in str(explain_load_error(name, caught.value))


def test_folder_with_a_missing_shard(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(_tiny(tmp_path)).save_pretrained(
        tmp_path / "sharded", max_shard_size="2KB"
    )
    next((tmp_path / "sharded").glob("model-00002-*")).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        AutoModelForCausalLM.from_pretrained(tmp_path / "sharded")
    explained = explain_load_error(str(tmp_path / "sharded"), caught.value)
    assert "one of its files is missing" in str(explained)
