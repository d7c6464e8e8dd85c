"""Greedy decoding by transformers itself: a reference for speed and ids, and answers in batches.

Rows of a padded batch are computed by other kernels than a single one, so that an id may differ
from that of a batch of one where two logits are nearly equal: batches are for answers of a
datastore, not for references and not for timing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from transformers import GenerationConfig


def greedy_answers(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    vocab_size: int,
    eos_ids: Collection[int],
    **kwargs: Any,
) -> list[list[int]]:
    """What the library's own greedy decoding answers to prompts.

    Args:
        model: Of transformers; its generation configuration is put back afterwards.
        prompts: At least one, of any lengths of at least 1.
        max_new_tokens: Output budget of each, in tokens.
        vocab_size: Ids from there on are never generated.
        eos_ids: Ids that end an answer; may be empty.
        kwargs: Fields of the generation configuration, e.g. `prompt_lookup_num_tokens`.

    Returns:
        The output ids of each prompt, EOS included.
    """
    ends = sorted(eos_ids) or None
    pad_id = ends[0] if ends else 0
    longest = max(map(len, prompts))
    padded = [[pad_id] * (longest - len(ids)) + list(ids) for ids in prompts]
    mask = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]
    num_columns = model.config.get_text_config(decoder=True).vocab_size
    # A checkpoint's own configuration may ask for penalties, which greedy decoding has not.
    plain = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=ends,
        pad_token_id=pad_id,
        suppress_tokens=list(range(vocab_size, num_columns)) or None,
        **kwargs,
    )
    device = model.get_input_embeddings().weight.device
    stored, model.generation_config = model.generation_config, plain
    try:
        output = model.generate(
            torch.tensor(padded, device=device), attention_mask=torch.tensor(mask, device=device)
        )
    finally:
        model.generation_config = stored
    return [_until_eos(row, eos_ids) for row in output[:, longest:].tolist()]


def _until_eos(ids: list[int], eos_ids: Collection[int]) -> list[int]:
    """Without the padding behind the first EOS."""
    end = next((i for i, token_id in enumerate(ids) if token_id in eos_ids), len(ids))
    return ids[: end + 1]
