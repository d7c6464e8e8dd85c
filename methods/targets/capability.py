"""What a target model must be able to do, checked once when it is loaded.

Declared properties come first (layer types, windows); then one small tree is forwarded for real,
because an architecture that ignores masks or positions does not say so.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from methods.targets.base import TargetModel, UnsupportedModel
from methods.targets.grouped_attention import EXACT_ATTENTION, GROUPED_ATTENTION
from primitives.types import DraftTree

# Layers whose rows can be dropped again. Anything else (linear attention, Mamba, convolutions)
# keeps a running state that a rejected draft would have changed for good.
ROLLBACK_LAYERS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})


def max_context(config: Any) -> int | None:
    """Most tokens for which full attention over the cache is what the model computes.

    A sliding window (or attention chunk) hides nothing for as long as the text fits into it, so
    such models are served up to that length and refuse longer prompts.
    """
    layer_types = set(getattr(config, "layer_types", None) or ())
    limits = [getattr(config, "max_position_embeddings", None)]
    if "sliding_attention" in layer_types or not layer_types:
        limits.append(getattr(config, "sliding_window", None))
    if "chunked_attention" in layer_types:
        limits.append(getattr(config, "attention_chunk_size", None))
    known = [int(limit) for limit in limits if limit]
    return min(known) if known else None


def check_architecture(model: Any, config: Any) -> None:
    """Refuses models whose cache cannot be rolled back, by what they declare.

    Raises:
        UnsupportedModel: With the reason.
    """
    name = type(model).__name__
    foreign = set(getattr(config, "layer_types", None) or ()) - ROLLBACK_LAYERS
    if foreign or getattr(model, "_is_stateful", False):
        kinds = ", ".join(sorted(foreign)) or "a recurrent state"
        raise UnsupportedModel(
            f"{name} has layers that cannot drop rejected draft tokens ({kinds}): speculative "
            "decoding needs a cache of keys and values in every layer"
        )
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModel(f"{name} is an encoder-decoder model: a causal model is needed")
    if model.get_output_embeddings() is None:
        raise UnsupportedModel(f"{name} has no LM head: a causal language model is needed")
    if str(config._attn_implementation) not in (
        "eager",
        "sdpa",
        GROUPED_ATTENTION,
        EXACT_ATTENTION,
    ):
        raise UnsupportedModel(
            f"attn_implementation={config._attn_implementation} takes no tree mask: "
            "use model.attn_implementation=sdpa (or eager)"
        )


def check_tree_forward(target: TargetModel, *, name: str, is_exact: bool) -> None:
    """Compares one small tree with the sequential forwards of its paths, before any run.

    Architectures that ignore 4-D masks or explicit positions (ALiBi, learned offsets) would
    otherwise give wrong drafts without a word.

    Args:
        target: With an empty cache; it is left so.
        name: Of the model, for messages.
        is_exact: Whether it computes in float32 or better, without quantisation.

    Raises:
        UnsupportedModel: If the two differ beyond rounding, or the forward of a tree fails.
    """
    try:
        error = tree_forward_error(target)
    except torch.OutOfMemoryError:
        raise
    except (ValueError, TypeError, IndexError, RuntimeError) as cause:
        raise UnsupportedModel(f"{name} cannot forward a small draft tree: {cause}") from cause
    # A wrong mask or position changes logits by about their own standard deviation; rounding is
    # below 1e-5 of it in float32 and below 0.1 in 16-bit or quantised models.
    if not error < (1e-3 if is_exact else 0.3):
        reason = "it seems to ignore tree masks or explicit positions"
        if not is_exact:
            reason += ", or its arithmetic makes the rows of a forward depend on each other"
        raise UnsupportedModel(
            f"{name} does not give the same logits for a draft tree as for its paths one by one "
            f"(difference {error:.2g} standard deviations): {reason}"
        )


def tree_forward_error(target: TargetModel) -> float:
    """Largest difference between tree and sequential logits, in standard deviations of logits.

    The tree's paths lie far apart in row order, so that rows counted as positions show up:

        root +- 8 decoys
             +- right - leaf         (rows 9 and 10, depths 1 and 2)
    """
    ids = [(7 + 13 * i) % target.vocab_size for i in range(16)]
    prompt, root, decoys, right, leaf = ids[:4], ids[4], sorted({*ids[5:13]}), ids[13], ids[14]
    decoys = [token_id for token_id in decoys if token_id != right]
    row = len(decoys) + 1
    tree = DraftTree.from_nodes([root, *decoys, right, leaf], [-1, *[0] * row, row])
    target.prefill(prompt, reserve=4, draft_rows=tree.num_nodes)
    rows = target.forward_tree(tree).logits.clone()
    target.commit([0, row])
    after = target.forward_tree(DraftTree.root_only(leaf)).logits[0].clone()
    errors = []
    for logits, path in (
        (rows[1], [root, decoys[0]]),
        (rows[row + 1], [root, right, leaf]),
        (after, [root, right, leaf]),
    ):
        expected = target.prefill([*prompt, *path], reserve=0).last_logits.double()
        errors.append(float((logits - expected).abs().max() / expected.std()))
    target.reset()
    return max(errors) if not any(map(math.isnan, errors)) else math.nan
