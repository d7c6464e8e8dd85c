"""The head of verifier `judge`: logistic regression on hidden states, with what is known about it.

    weights, mean, scale    float32 [d]
    bias                    float32 []
    facts                   JSON, in the file's metadata

One safetensors file. A head reads the hidden states of the model that it was trained on, and of no
other: opening it for another model is refused.

Cost: one product [n, d] x [d].
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from methods.files import write_atomically
from methods.hashing import file_sha256
from primitives.interfaces import Verifier

FORMAT_VERSION = 1
FACTS = "facts"
VECTORS = ("weights", "mean", "scale")


class JudgeHeadError(ValueError):
    """A head that cannot be opened; the message says which, why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class HeadFacts:
    """What a head says about itself.

    Attributes:
        model: What identifies the model whose hidden states it reads.
        num_prompts: Prompts that labels come from.
        num_labels: Labelled mismatches.
        num_unimportant: Those that did no harm.
        auc: Area under the ROC curve on prompts that a head had not seen, in [0, 1].
        accuracy: Share that it labels rightly there at even odds, in [0, 1].
        threshold: A threshold for the verifier, in [0, 1].
        rejected: Share of important mismatches that stay rejected there, in [0, 1], under a
            threshold that was chosen without them.
        recall: Share of unimportant mismatches that are kept there, likewise.
        options: How the labels were made and the head was trained.
        format_version: Of the file.
    """

    model: Mapping[str, Any]
    num_prompts: int
    num_labels: int
    num_unimportant: int
    auc: float
    accuracy: float
    threshold: float
    rejected: float
    recall: float
    options: Mapping[str, Any] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearHead:
    """The probability sigmoid(weights · (h - mean) / scale + bias) that a token will do.

    Attributes:
        weights: Of the standardised hidden state.
        bias: Log odds of an average hidden state.
        mean: Is subtracted.
        scale: Divides what is left; above 0.
    """

    weights: Float[Tensor, "d"]
    bias: Float[Tensor, ""]
    mean: Float[Tensor, "d"]
    scale: Float[Tensor, "d"]
    _on_device: dict[torch.device, tuple[Tensor, ...]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __call__(self, hidden: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """Probabilities in float32, computed where the hidden states are.

        Raises:
            ValueError: If the hidden states are of another size.
        """
        if hidden.shape[-1] != len(self.weights):
            raise ValueError(
                f"the judge's head reads hidden states of size {len(self.weights)}, "
                f"got {hidden.shape[-1]}"
            )
        weights, bias, mean, scale = self._tensors_on(hidden.device)
        return torch.sigmoid(((hidden.float() - mean) / scale) @ weights + bias)

    def _tensors_on(self, device: torch.device) -> tuple[Tensor, ...]:
        if device not in self._on_device:
            own = (self.weights, self.bias, self.mean, self.scale)
            self._on_device[device] = tuple(tensor.to(device, torch.float32) for tensor in own)
        return self._on_device[device]


def attach_head(verifier: Verifier, model: Mapping[str, Any]) -> dict[str, Any] | None:
    """Opens the head that a verifier names by its field `head`, and hands it over.

    Args:
        verifier: Of a method.
        model: What identifies the target model (`model_identity`).

    Returns:
        What the head says about itself, and the `content_hash` of its file; None if the verifier
        needs no head.

    Raises:
        JudgeHeadError: If it names none, or one that cannot be opened for this model.
    """
    if "head" not in verifier.needs:
        return None
    file = getattr(verifier, "head", None)
    if file is None:
        raise JudgeHeadError(
            f"verifier={verifier.name} needs a trained head, but verifier.head is null: add "
            "verifier.head=FILE (scripts/train_judge.py trains one)"
        )
    path = Path(file).expanduser()
    head, facts = load_head(path, model)
    verifier.attach(head=head)
    return {**dataclasses.asdict(facts), "content_hash": file_sha256(path)[:16]}


def save_head(path: Path, head: LinearHead, facts: HeadFacts) -> None:
    """Writes a head; its file is either complete or as it was before.

    Raises:
        OSError: If it cannot be written.
    """
    names = (*VECTORS, "bias")
    tensors = {name: getattr(head, name).to(torch.float32).contiguous() for name in names}
    text = json.dumps(dataclasses.asdict(facts), ensure_ascii=True, allow_nan=False)
    write_atomically(path, save(tensors, metadata={FACTS: text}))


def load_head(path: Path, model: Mapping[str, Any]) -> tuple[LinearHead, HeadFacts]:
    """Opens a head for a model.

    Args:
        path: The file.
        model: What identifies the target model (`model_identity`).

    Raises:
        JudgeHeadError: If it is no undamaged head, or one of another model.
    """
    tensors, facts = _read(path)
    differing = [key for key in model if facts.model.get(key) != model[key]]
    if differing:
        key = differing[0]
        raise JudgeHeadError(
            f"{path} was trained on a model of {key} {facts.model.get(key)!r}, the target model "
            f"has {model[key]!r}: train one for this model with scripts/train_judge.py"
        )
    size = tensors["weights"].shape
    is_sound = all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    is_sound &= len(size) == 1 and all(tensors[name].shape == size for name in VECTORS)
    if not (is_sound and tensors["bias"].shape == () and bool((tensors["scale"] > 0).all())):
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        raise JudgeHeadError(
            f"{path}: weights, mean and scale must be finite, of one size, and scale above 0, "
            f"got the shapes {shapes}"
        )
    return LinearHead(**tensors), facts


def _read(path: Path) -> tuple[dict[str, Tensor], HeadFacts]:
    try:
        with safe_open(path, "pt") as file:
            values = json.loads((file.metadata() or {})[FACTS])
            tensors = {name: file.get_tensor(name) for name in (*VECTORS, "bias")}
        if (version := values["format_version"]) != FORMAT_VERSION:
            raise JudgeHeadError(
                f"{path} has format {version}, this version reads {FORMAT_VERSION}: train it again"
            )
        return tensors, HeadFacts(**values)
    except FileNotFoundError:
        raise JudgeHeadError(
            f"{path}: no such file; scripts/train_judge.py trains a head for verifier.head"
        ) from None
    except (SafetensorError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise JudgeHeadError(f"{path} is no judge's head ({error}): train one") from error
    except OSError as error:
        raise JudgeHeadError(f"{path} cannot be read: {error}") from error
