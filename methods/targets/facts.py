"""Facts about a model: its devices, what ends its texts, and what identifies it in records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from methods.hashing import blocks_sha256
from methods.targets.base import UnsupportedModel


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Ids that end a generation: of the generation config, else model, else tokenizer."""
    for holder in (model.generation_config, model.config, tokenizer):
        ids = getattr(holder, "eos_token_id", None)
        if ids is not None:
            return (
                frozenset(map(int, ids)) if isinstance(ids, list | tuple) else frozenset({int(ids)})
            )
    return frozenset()


def checked_device(name: str) -> torch.device:
    """A device of this machine.

    Raises:
        ValueError: If there is no such device.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"model.device={name} is not to be had here: {reason}. Use auto, cpu, cuda or cuda:N"
        ) from error
    return device


def devices_of(model: Any) -> tuple[torch.device, ...]:
    """All devices that hold parameters.

    Raises:
        UnsupportedModel: If some are kept on disk: every pass would read them again.
    """
    devices = sorted({parameter.device for parameter in model.parameters()}, key=str)
    if any(device.type == "meta" for device in devices):
        raise UnsupportedModel(
            "model.device_map leaves a part of the model on disk: it would be timed, not the method"
        )
    return tuple(devices)


def files_hash(source: str) -> str | None:
    """16 hex digits over names, sizes and contents of a local model's files; None without a folder.

    Of large files blocks are read that are spread evenly: training changes nearly all weights.
    """
    folder = Path(source)
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, size = path.relative_to(folder).as_posix(), path.stat().st_size
        digest.update(f"{name}:{size}:{blocks_sha256(path)}\n".encode())
    return digest.hexdigest()[:16]


def hub_commit(name: str, revision: str | None) -> str | None:
    """The commit of a hub model that is loaded, of the hub or, without a connection, of the cache.

    None if it cannot be told.
    """
    from transformers.utils import cached_file

    try:
        path = Path(str(cached_file(name, "config.json", revision=revision)))
    except (OSError, ValueError):  # What is wrong with a model is told where it is loaded.
        return None
    # models--<owner>--<name>/snapshots/<commit>/config.json
    return path.parent.name if path.parent.parent.name == "snapshots" else None


def model_identity(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal for answers and hidden states of two loaded models to be the same.

    Kernels are left out: they move logits in the last bits only.
    """
    names = ("source", "revision", "files", "dtype", "quantization")
    return {name: facts.get(name) for name in names}


def tokenizer_hash(tokenizer: Any, template: str | None) -> str:
    """16 hex digits over vocabulary, added tokens and chat template."""
    content = json.dumps([sorted(tokenizer.get_vocab().items()), template], ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
