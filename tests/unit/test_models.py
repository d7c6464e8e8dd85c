"""The model group of the configuration, and the labels of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from methods.targets.loading import HuggingFaceConfig
from methods.targets.naming import model_label

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("name", "name_or_path", "label"),
    [
        ("llama3-8b", "x/y", "llama3-8b"),
        (None, "Qwen/Qwen2.5-0.5B", "Qwen2.5-0.5B"),
        (None, "/local/my model/", "my-model"),
        (None, "C:\\models\\mine", "mine"),
        ("../evil", "x", "evil"),
    ],
)
def test_model_label(name: str | None, name_or_path: str, label: str) -> None:
    assert model_label(name, name_or_path) == label


def test_model_label_of_nothing() -> None:
    with pytest.raises(ValueError, match=r"model\.name must hold a letter"):
        model_label(None, "/")


MODELS = sorted(path.stem for path in (CONFIGS / "model").glob("[!_]*.yaml"))


def _compose(model: str, *overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose(overrides=[f"+model={model}", *overrides])
    content = OmegaConf.to_container(config.model, resolve=True)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


@pytest.mark.parametrize("model", MODELS)
def test_model_configs_compose(model: str) -> None:
    fields = _compose(model)
    first_line = (CONFIGS / "model" / f"{model}.yaml").read_text().splitlines()[0]
    assert first_line.startswith(f"# python run.py method=pld model={model}")
    if fields["kind"] == "toy":
        return
    base = OmegaConf.to_container(OmegaConf.load(CONFIGS / "model" / "_huggingface.yaml"))
    assert isinstance(base, dict)
    assert fields.keys() == base.keys()
    assert fields["dtype"] in {"auto", "float32", "bfloat16", "float16", "float64"}
    assert fields["name"] == (None if model == "hf" else model)
    assert fields["trust_remote_code"] is False


def test_hf_model_takes_a_name() -> None:
    assert _compose("hf", "model.name_or_path=/local/folder")["name_or_path"] == "/local/folder"


def test_all_promised_models_are_there() -> None:
    promised = "smollm2-135m toy hf llama3-8b llama3.2-1b llama2-7b vicuna-7b qwen2.5-7b"
    promised += " qwen2.5-14b qwen3-8b qwen3-14b"
    assert set(MODELS) >= set(promised.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prepack": True, "compile": "inductor"}, "prepack and model.compile exclude"),
        ({"prepack": True, "tp_plan": "auto"}, "prepack and model.tp_plan exclude"),
        ({"prepack": True, "quantization": "bnb-4bit"}, "prepack and model.quantization exclude"),
        ({"prepack": True, "quantization": "int8"}, "prepack and model.quantization exclude"),
        ({"compile": "inductor", "tp_plan": "auto"}, "compile and model.tp_plan exclude"),
        ({"compile": "inductor", "quantization": "int8"}, "compile and model.quantization exclude"),
        ({"tp_plan": "auto", "device_map": "auto"}, "tp_plan and model.device_map exclude"),
        ({"device_map": "auto", "device": "cpu"}, "device and model.device_map exclude"),
        (
            {"compile": "cudagraphs", "device": "cpu"},
            "compile=cudagraphs is for CUDA, got model.device=cpu",
        ),
        (
            {"quantization": "int8", "attn_implementation": "eager"},
            "quantization=int8 needs model.attn_",
        ),
        ({"name_or_path": "embedded", "revision": "main"}, "revision is for hub models"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_loading(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"model.{message}"):
        HuggingFaceConfig(**{"name_or_path": "/no/such/folder", **options}).load()


@pytest.mark.parametrize(
    "options", [{}, {"compile": "inductor"}, {"quantization": "int8"}, {"prepack": True}]
)
def test_options_that_go_together_are_loaded(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An automatic choice gives way to any other option."""
    monkeypatch.setattr(HuggingFaceConfig, "_from_pretrained", mock.Mock(side_effect=KeyError("x")))
    with pytest.raises(KeyError, match="x"):
        HuggingFaceConfig(name_or_path="/no/such/folder", **options).load()
