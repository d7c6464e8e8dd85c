"""Model configuration -> loaded target model, text codec and what is to be recorded about them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from methods.targets.base import TargetModel, TextCodec
from methods.targets.codec import ChatCodec
from methods.targets.cpu_linear import linear_kernels, prepack_linears, quantize_linears_int8
from methods.targets.errors import explain_load_error
from methods.targets.facts import (
    checked_device,
    devices_of,
    eos_ids,
    files_hash,
    hub_commit,
    tokenizer_hash,
)
from methods.targets.grouped_attention import EXACT_ATTENTION, GROUPED_ATTENTION
from methods.targets.huggingface import HuggingFaceTarget
from methods.targets.naming import model_label
from methods.targets.prompting import load_template
from methods.targets.smollm2 import FOLDER_NAME, ensure_smollm2
from methods.targets.static_forward import CompileMode
from methods.targets.tensor_parallel import (
    check_heads,
    check_world,
    join,
    tensor_parallel_argument,
    world_size,
)
from methods.targets.toy import ToyCodec, ToyTarget

EMBEDDED = "embedded"


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedModel:
    """A target model, its codec, and facts for the record.

    Attributes:
        name: Label in result paths.
        target: The target model.
        codec: Text to ids and back.
        devices: Where the model runs; several if it is spread.
        facts: What identifies it: source, revision, dtype, kernels, tokenizer hash.
    """

    name: str
    target: TargetModel
    codec: TextCodec
    devices: tuple[torch.device, ...]
    facts: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ToyConfig:
    """Configuration of `model=toy`; see `ToyTarget` for the fields."""

    name: str = "toy"
    vocab_size: int = 32
    seed: int = 0

    def load(self) -> LoadedModel:
        """An exact toy target."""
        return LoadedModel(
            name=self.name,
            target=ToyTarget(vocab_size=self.vocab_size, seed=self.seed),
            codec=ToyCodec(vocab_size=self.vocab_size),
            devices=(torch.device("cpu"),),
            facts={
                "source": "toy",
                "revision": f"seed-{self.seed}",
                "dtype": "float64",
                "tokenizer_hash": f"toy-{self.vocab_size}",
            },
        )


@dataclass(frozen=True, kw_only=True)
class HuggingFaceConfig:
    """Configuration of a Hugging Face causal model.

    Attributes:
        name: Label in result paths; None takes the last part of `name_or_path`.
        name_or_path: Hub name or local folder; `embedded` for the project's own.
        revision: Branch, tag or commit of a hub model.
        dtype: `auto` is what the checkpoint says.
        device: `auto` is CUDA where there is one, else CPU.
        device_map: Passed to transformers to spread a model over devices, layer by layer; excludes
            `device`.
        tp_plan: `auto` splits each layer over the processes that torchrun has started; excludes
            `device_map` and `quantization`.
        attn_implementation: `sdpa` or `eager`; CPU variants of `sdpa` take its place with `int8`
            and `prepack`.
        trust_remote_code: Whether code from the hub may run.
        quantization: `int8` is this project's, for CPU: one scale per row, so that rows of a draft
            tree do not influence each other. `bnb-8bit` and `bnb-4bit` are bitsandbytes.
        prepack: Repack float32 weights for MKL on CPU, and attend by groups (see
            `grouped_attention`); `auto` does where this torch has MKL and no other option has a
            say; true excludes `compile`, `tp_plan` and `quantization`.
        compile: Compiles the forwards of trees, padded to few sizes: `inductor`, or `cudagraphs` on
            CUDA; see `static_forward`.
        chat_template: `auto` is the tokenizer's own (plain text if it has none), `none` is plain
            text; else a packaged template's name or a file.
        chat_template_kwargs: Passed to the template.
        system_prompt: Put before the conversation; None leaves it to the template.
    """

    name: str | None = None
    name_or_path: str
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16", "float64"] = "auto"
    device: str = "auto"
    device_map: str | None = None
    tp_plan: Literal["auto"] | None = None
    attn_implementation: Literal["sdpa", "eager"] = "sdpa"
    trust_remote_code: bool = False
    quantization: Literal["int8", "bnb-8bit", "bnb-4bit"] | None = None
    prepack: Literal["auto"] | bool = "auto"
    compile: CompileMode | None = None
    chat_template: str = "auto"
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    system_prompt: str | None = None

    @property
    def label(self) -> str:
        """The model's name in result paths; a quantised model is another one."""
        label = model_label(self.name, self.name_or_path)
        is_told = self.quantization is None or label.endswith(self.quantization)
        return label if is_told else f"{label}-{self.quantization}"

    def load(self) -> LoadedModel:
        """Loads model and tokenizer and prepares the target.

        Raises:
            ModelUnavailable: If the model cannot be had as asked; the message says what to do.
            UnsupportedModel: If it cannot serve as a target model.
            ValueError: If options exclude each other.
        """
        device = self._device()
        self._check_options(device)
        source = str(ensure_smollm2()) if self.name_or_path == EMBEDDED else self.name_or_path
        tokenizer, model = self._from_source(source, device)
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        kernels = self._prepare_linears(model, device)
        target = HuggingFaceTarget(
            model,
            vocab_size=len(tokenizer),
            eos_ids=eos_ids(model, tokenizer),
            is_quantized=self.quantization not in (None, "int8"),
            compile_mode=self.compile,
        )
        template = load_template(tokenizer, self.chat_template)
        codec = ChatCodec(
            tokenizer=tokenizer,
            template=self.chat_template,
            template_kwargs=self.chat_template_kwargs,
            system_prompt=self.system_prompt,
        )
        facts = {
            **self._facts(source, model),
            "linear_kernels": kernels,
            "num_parameters": num_parameters,
            "tokenizer_hash": tokenizer_hash(tokenizer, template),
        }
        return LoadedModel(
            name=self.label,
            target=target if self.tp_plan is None else join(target),
            codec=codec,
            devices=devices_of(model),
            facts=facts,
        )

    def _facts(self, source: str, model: Any) -> dict[str, Any]:
        """What was loaded, for the record."""
        return {
            "source": self.name_or_path,
            "revision": self._commit(source) or self.revision,
            "architecture": type(model).__name__,
            "dtype": str(model.dtype).removeprefix("torch."),
            "attention": str(model.config._attn_implementation),
            "tensor_parallel": world_size() if self.tp_plan else None,
            "device_map": {k: str(v) for k, v in getattr(model, "hf_device_map", {}).items()},
            "quantization": self.quantization,
            # What conversion writes beside the weights differs between library versions.
            "files": FOLDER_NAME if self.name_or_path == EMBEDDED else files_hash(source),
        }

    def _commit(self, source: str) -> str | None:
        """Of a hub model."""
        if self.name_or_path == EMBEDDED or Path(source).is_dir():
            return None
        return hub_commit(source, self.revision)

    def _device(self) -> torch.device:
        if self.device_map is not None and self.device != "auto":
            raise ValueError("model.device and model.device_map exclude each other: set one")
        if self.device != "auto":
            return checked_device(self.device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def _check_options(self, device: torch.device) -> None:
        """Refuses what does not go together, before anything is loaded.

        Raises:
            ValueError: If options exclude each other, or the processes are not those of `tp_plan`.
        """
        for option, is_asked, others in (
            ("tp_plan", self.tp_plan is not None, ("device_map", "quantization")),
            ("compile", self.compile is not None, ("device_map", "tp_plan", "quantization")),
            ("prepack", self.prepack is True, ("compile", "tp_plan", "quantization")),
        ):
            other = next((name for name in others if getattr(self, name) is not None), None)
            if is_asked and other is not None:
                raise ValueError(f"model.{option} and model.{other} exclude each other: set one")
        if self.tp_plan is not None:
            check_world()
        if self.compile == "cudagraphs" and device.type != "cuda":
            raise ValueError(f"model.compile=cudagraphs is for CUDA, got model.device={device}")
        if self.quantization == "int8" and self.attn_implementation != "sdpa":
            raise ValueError("model.quantization=int8 needs model.attn_implementation=sdpa")
        if self.name_or_path == EMBEDDED and self.revision is not None:
            raise ValueError("model.revision is for hub models: the embedded one has none")

    def _from_source(self, source: str, device: torch.device) -> tuple[Any, Any]:
        """Tokenizer and model; what transformers raises is explained."""
        try:
            return self._from_pretrained(source, device)
        except Exception as error:
            if (explained := explain_load_error(source, error)) is None:
                raise
            raise explained from error

    def _from_pretrained(self, source: str, device: torch.device) -> tuple[Any, Any]:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging as library_logging

        library_logging.disable_progress_bar()
        library_logging.disable_propagation()  # Its own handler prints already.
        shared = {"revision": self.revision, "trust_remote_code": self.trust_remote_code}
        if self.tp_plan is not None:
            check_heads(AutoConfig.from_pretrained(source, **shared))
        tokenizer = AutoTokenizer.from_pretrained(source, **shared)
        model = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=self.dtype if self.dtype == "auto" else getattr(torch, self.dtype),
            # Only with attention sums of one order are int8 rows independent of each other.
            attn_implementation=(
                EXACT_ATTENTION if self.quantization == "int8" else self.attn_implementation
            ),
            device_map=self.device_map or ({"": device} if self._bitsandbytes() else None),
            quantization_config=self._bitsandbytes(),
            **(tensor_parallel_argument() if self.tp_plan else {}),
            **shared,
        )
        # Spread and bitsandbytes models are where they belong already.
        is_spread = self.device_map is not None or self.tp_plan is not None
        is_placed = is_spread or self._bitsandbytes() is not None
        return tokenizer, (model if is_placed else model.to(device)).eval()

    def _bitsandbytes(self) -> Any:
        if self.quantization not in ("bnb-8bit", "bnb-4bit"):
            return None
        from transformers import BitsAndBytesConfig

        # It says at every call that it casts its inputs.
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
        is_8bit = self.quantization == "bnb-8bit"
        return BitsAndBytesConfig(load_in_8bit=is_8bit, load_in_4bit=not is_8bit)

    def _prepare_linears(self, model: Any, device: torch.device) -> str:
        """Swaps linear layers where the options ask for it; says what computes them now."""
        is_cpu_float32 = device.type == "cpu" and model.dtype == torch.float32
        if self.quantization == "int8":
            if not is_cpu_float32:
                raise ValueError(
                    f"model.quantization=int8 is for model.device=cpu model.dtype=float32, got "
                    f"{device.type} and {model.dtype} (bnb-8bit is for GPUs)"
                )
            quantize_linears_int8(model)
            return "int8"
        if other := self.quantization or self.compile:
            return other
        if self.prepack is False or self.tp_plan is not None:
            return "stock"
        if self.prepack == "auto" and not (is_cpu_float32 and linear_kernels()["prepacked"]):
            return "stock"
        prepack_linears(model)
        if self.attn_implementation == "sdpa":
            model.set_attn_implementation(GROUPED_ATTENTION)
        return "prepacked"
