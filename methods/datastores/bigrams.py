"""Bigram stores on disk: what a model finds most probable behind every single token.

    header.json
    next_ids.bin    per token the most probable next ones, best first: int32 [v, k]
    probs.bin       their probabilities: float16 [v, k]

The model reads each token behind the same few ids, many tokens at a time where it can. Without any,
some models say nearly the same behind every token: they rest their attention on the first position,
whatever stands there. (SmolLM2-135M: of 500 bigrams of its chats 0.4 % are the first of a row, with
a line end before each token 11 %.)

Source: the model-derived bigrams of N-Grammys (Stewart et al. 2024, arXiv 2411.03786).
Cost: one forward per token of the vocabulary; a store takes 6 bytes per token and successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from methods.datastores.folder import (
    DatastoreError,
    Header,
    building,
    check_files,
    mapped,
    read_header,
    write_header,
)
from methods.targets.base import BatchedModel, TargetModel
from primitives.structures.bigrams import BigramTable
from primitives.structures.top_tokens import top_tokens

NEXT_IDS, PROBS = "next_ids.bin", "probs.bin"
ID_DTYPE, PROB_DTYPE = np.dtype("<i4"), np.dtype("<f2")


def build_bigram_store(
    path: Path,
    target: TargetModel,
    *,
    tokenizer_hash: str,
    model: Mapping[str, Any],
    num_next: int,
    batch_size: int,
    prefix_ids: Sequence[int] = (),
    command: str = "",
    options: Mapping[str, Any] | None = None,
    report: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Header:
    """Asks a model about every token of its vocabulary, and writes what it says.

    Args:
        path: Where the store will be; nothing may be there.
        target: The model; its cache is emptied.
        tokenizer_hash: For the header, as are model, command, options and report.
        num_next: Next tokens per token, at least 1; all of them if there are fewer.
        batch_size: Tokens that are forwarded at a time, at least 1.
        prefix_ids: What stands before each token.
        progress: Called after each batch with the number of its tokens.

    Raises:
        DatastoreError: If a setting is too small, or the place cannot be written.
    """
    for name, value in (("num_next", num_next), ("batch_size", batch_size)):
        if value < 1:
            raise DatastoreError(f"{name} must be ≥ 1, got {value}")
    vocab_size = target.vocab_size
    with building(path) as folder:
        with (folder / NEXT_IDS).open("wb") as ids, (folder / PROBS).open("wb") as probs:
            for logits in _every_token(target, tuple(prefix_ids), batch_size):
                best = top_tokens(logits, num_next)
                likely = torch.softmax(logits.float(), dim=-1).gather(1, best)
                ids.write(best.cpu().numpy().astype(ID_DTYPE).tobytes())
                probs.write(likely.cpu().numpy().astype(PROB_DTYPE).tobytes())
                if progress is not None:
                    progress(len(logits))
        header = Header(
            kind="bigrams",
            vocab_size=vocab_size,
            token_dtype=ID_DTYPE.name,
            tokenizer_hash=tokenizer_hash,
            num_tokens=vocab_size,
            num_documents=0,
            model=model,
            command=command,
            options={
                **(options or {}),
                "num_next": min(num_next, vocab_size),
                "prefix_ids": list(prefix_ids),
            },
            report=report or {},
        )
        return write_header(folder, header)


def open_bigram_store(
    path: Path,
    *,
    tokenizer_hash: str | None = None,
    vocab_size: int | None = None,
    model: Mapping[str, Any] | None = None,
) -> tuple[BigramTable, Header]:
    """The table, mapped into memory, and its header; the keywords are as in `read_header`.

    Raises:
        DatastoreError: If it is not a whole and undamaged bigram store for this use.
    """
    header = read_header(
        path, kind="bigrams", tokenizer_hash=tokenizer_hash, vocab_size=vocab_size, model=model
    )
    check_files(path, header)
    shape = (header.vocab_size, header.options["num_next"])
    table = BigramTable(
        mapped(path / NEXT_IDS, ID_DTYPE, shape=shape),
        mapped(path / PROBS, PROB_DTYPE, shape=shape),
    )
    return table, header


def _every_token(
    target: TargetModel, prefix_ids: tuple[int, ...], batch_size: int
) -> Iterator[Float[Tensor, "b v"]]:
    """Logits behind each token of the vocabulary, in order, a batch at a time."""
    for start in range(0, target.vocab_size, batch_size):
        ids = range(start, min(start + batch_size, target.vocab_size))
        with torch.inference_mode():
            yield _last_logits(target, [(*prefix_ids, token_id) for token_id in ids])
    target.reset()


def _last_logits(target: TargetModel, prompts: Sequence[tuple[int, ...]]) -> Float[Tensor, "b v"]:
    """Of prompts of one length: by one forward where the target model can."""
    if isinstance(target, BatchedModel):
        return target.last_logits_of(prompts)
    rows = []
    for prompt in prompts:
        target.reset()
        rows.append(target.prefill(prompt, reserve=0).last_logits)
    return torch.stack(rows)
