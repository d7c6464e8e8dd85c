"""SmolLM2's GGUF file -> the folder that `from_pretrained` loads, and a check that it is right.

The weights are dequantised with the `gguf` package and renamed. transformers' own `gguf_file=`
gives the same weights bit for bit (5.0 and 5.24) and is the oracle in the tests, not the tool: it
demands `accelerate`, refuses to save what it loaded (5.24), and builds a wrong tokenizer for this
model. 5.0 takes it for a CodeLlama tokenizer; 5.24 does not know the pre-tokenizer `smollm`, so in
"a  1" the number takes a space from the double-space token. Here the tokenizer comes from the
file's own vocabulary, merges and rule, alike under every release.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from methods.targets.errors import ModelUnavailable

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
CONTROL_TOKEN = 3
"""The GGUF token type of special tokens."""


def convert(gguf_path: Path, folder: Path) -> None:
    """Writes config, generation config, tokenizer and float32 weights into a new folder."""
    from gguf import GGUFReader

    reader = GGUFReader(gguf_path)
    folder.mkdir()
    metadata = {name: reader.fields[name] for name in reader.fields}
    _write_json(folder / "config.json", _config(metadata))
    _write_json(folder / "generation_config.json", _special_ids(metadata))
    _write_tokenizer(metadata, folder)
    _write_weights(reader, folder / "model.safetensors")


def verify(folder: Path) -> None:
    """Loads the folder as users will, and compares what is known about this model.

    Raises:
        ModelUnavailable: If a weight is missing or left over, if a text changes on its way through
            the tokenizer, or if the model does not know the capital of France.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    text = "  It's 12,345\n\n\tx = {'é': 7}  日本 <|im_start|>"
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.inference_mode():
        answer = tokenizer.decode(model(ids).logits[0, -1].argmax())
    faults = [f"{key}: {info[key]}" for key in ("missing_keys", "unexpected_keys") if info[key]]
    if (back := tokenizer.decode(tokenizer.encode(text))) != text:
        faults.append(f"the tokenizer turns {text!r} into {back!r}")
    if answer != " Paris":
        faults.append(f"the capital of France must be ' Paris', got {answer!r}")
    if faults:
        raise ModelUnavailable(
            "the converted SmolLM2-135M-Instruct fails its check under the installed transformers "
            f"and gguf versions ({'; '.join(faults)}): install the versions in constraints.txt."
        )


def _config(metadata: dict[str, Any]) -> dict[str, Any]:
    def get(name: str) -> Any:
        return metadata[f"llama.{name}"].contents()

    # The file stores 1e-5 as the nearest float32; a float64 model would see 9.999999747e-06.
    epsilon = float(str(np.float32(get("attention.layer_norm_rms_epsilon"))))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": get("vocab_size"),
        "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": get("attention.head_count"),
        "num_key_value_heads": get("attention.head_count_kv"),
        "head_dim": get("rope.dimension_count"),
        "max_position_embeddings": get("context_length"),
        "rope_theta": get("rope.freq_base"),
        "rms_norm_eps": epsilon,
        "hidden_act": "silu",
        # The file has no `output.weight`: the embedding is the LM head.
        "tie_word_embeddings": True,
        "dtype": "float32",
        **_special_ids(metadata),
    }


def _special_ids(metadata: dict[str, Any]) -> dict[str, int]:
    """The ids of `<|im_start|>` (bos) and `<|im_end|>` (eos, and pad)."""
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {
        key: metadata[f"tokenizer.ggml.{name}_token_id"].contents() for key, name in names.items()
    }


def _write_tokenizer(metadata: dict[str, Any], folder: Path) -> None:
    """Byte-level BPE whose rule `smollm` isolates every digit, then splits as GPT-2 does.

    The vocabulary alone seems to do as much, since no merge joins digits. It does not: the GPT-2
    rule, applied first, hands the last of several spaces to the number behind them.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    def get(name: str) -> Any:
        return metadata[f"tokenizer.{name}"].contents()

    if get("ggml.pre") != "smollm":
        raise ValueError(f"tokenizer.ggml.pre must be smollm, got {get('ggml.pre')}")
    tokens = get("ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in get("ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = get("ggml.token_type")
    control = [t for t, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            # The class that takes tokenizer.json as it is: a named one would bring its own rule.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[get("ggml.bos_token_id")],
            "eos_token": tokens[get("ggml.eos_token_id")],
            "pad_token": tokens[get("ggml.padding_token_id")],
            "unk_token": tokens[get("ggml.unknown_token_id")],
            "model_max_length": metadata["llama.context_length"].contents(),
            "clean_up_tokenization_spaces": False,
            "chat_template": get("chat_template"),
        },
    )


def _write_weights(reader: Any, path: Path) -> None:
    from gguf import dequantize
    from safetensors.numpy import save_file

    heads = {
        "attn_q": reader.fields["llama.attention.head_count"].contents(),
        "attn_k": reader.fields["llama.attention.head_count_kv"].contents(),
    }
    weights = {}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        name, part = _weight_name(tensor.name)
        if part in heads:
            array = _pair_to_half(array, heads[part])
        weights[name] = np.ascontiguousarray(array)
    save_file(weights, path, metadata={"format": "pt"})
    # safetensors makes it private to the user; a cache may be shared.
    path.chmod((path.parent / "config.json").stat().st_mode)


def _weight_name(gguf_name: str) -> tuple[str, str]:
    """`blk.7.attn_q.weight` -> the name in transformers, and the part `attn_q`."""
    if gguf_name in OUTER_NAMES:
        return OUTER_NAMES[gguf_name], ""
    _, layer, part, suffix = gguf_name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.{suffix}", part


def _pair_to_half(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Reorders a projection's rows for the rotary embedding of transformers.

    GGUF rotates neighbouring rows (2i, 2i + 1) of a head together; transformers rotates row i with
    row i + head_dim / 2.
    """
    rows, columns = weight.shape
    paired = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return paired.swapaxes(1, 2).reshape(rows, columns)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
