"""Stock Hugging Face causal models as targets: a 4-D tree mask, explicit positions, one cache.

The model class is used as it is. What its forward and its cache are called in a release of
transformers is known here and in `kv_cache.py` only.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, no_type_check

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from methods.targets.base import (
    StepOutput,
    TreeOutput,
    UnsupportedModel,
    check_prompt,
)
from methods.targets.capability import check_architecture, check_tree_forward, max_context
from methods.targets.capture import Capture, inner_layer
from methods.targets.generate import greedy_answers
from methods.targets.grouped_attention import EXACT_ATTENTION
from methods.targets.kv_cache import TreeCache
from methods.targets.static_forward import (
    CompileMode,
    StaticForward,
    as_attention_mask,
    bucket_of,
)
from methods.targets.transfer import upload
from primitives.structures.top_tokens import top_tokens
from primitives.types import PROMPT_TOP_K, DraftTree

CAPACITY_STEP = 256
COMPILED_CAPACITY_STEP = 1024
"""A new capacity is compiled anew."""
HEAD_CHUNK = 128
"""Rows of a prompt that pass the LM head at a time where all of them are ranked."""


class HuggingFaceTarget:
    """A `transformers` causal model behind the `TargetModel` protocol; batch 1.

    Args:
        model: In eval mode, on its device(s).
        vocab_size: Tokens the tokenizer knows; logits beyond it are cut off.
        eos_ids: Ids that end a generation.
        is_quantized: Whether its arithmetic is coarser than its dtype says.
        compile_mode: Compiles the forwards of trees, see `static_forward`; None does not.

    Raises:
        UnsupportedModel: If the model cannot forward trees or roll its cache back.
    """

    def __init__(
        self,
        model: Any,
        *,
        vocab_size: int,
        eos_ids: frozenset[int],
        is_quantized: bool = False,
        compile_mode: CompileMode | None = None,
    ) -> None:
        self.model = model
        self.config = model.config.get_text_config(decoder=True)
        self.vocab_size = min(vocab_size, self.config.vocab_size)
        self.eos_ids = eos_ids
        self.max_context = max_context(self.config)
        check_architecture(model, self.config)
        self._cache_argument = _cache_argument(model)
        self._attention = self.config._attn_implementation
        self._input_device = model.get_input_embeddings().weight.device
        self._head_input: Tensor | None = None
        model.get_output_embeddings().register_forward_pre_hook(self._keep_head_input)
        self._cache: TreeCache | None = None
        self._layer: Capture | None = None
        self._static = None if compile_mode is None else StaticForward(model, compile_mode)
        is_exact = model.dtype in (torch.float32, torch.float64) and not is_quantized
        check_tree_forward(self, name=type(model).__name__, is_exact=is_exact)

    @property
    def num_committed(self) -> int:
        """Committed rows, in tokens."""
        return 0 if self._cache is None else self._cache.num_committed

    @property
    def embeddings(self) -> Float[Tensor, "v d"]:
        """Input embeddings of the tokens that the tokenizer knows."""
        table: Tensor = self.model.get_input_embeddings().weight
        return table[: self.vocab_size]

    @property
    def cache(self) -> TreeCache:
        """The cache of the prompt in progress."""
        if self._cache is None or self._cache.num_committed == 0:
            raise RuntimeError("the target model needs a prefill first")
        return self._cache

    def reset(self) -> None:
        """Empties the cache; its buffers are kept for the next prompt."""
        if self._cache is not None:
            self._cache.clear()

    @torch.inference_mode()
    def prefill(
        self,
        token_ids: Sequence[int],
        *,
        reserve: int,
        draft_rows: int = 0,
        prompt_hidden: bool = False,
        prompt_top_ids: bool = False,
        hidden_layer: float | None = None,
    ) -> StepOutput:
        """See `TargetModel.prefill`; the LM head sees the last row only, unless all are ranked."""
        ids = [int(token_id) for token_id in token_ids]
        check_prompt(ids, vocab_size=self.vocab_size, reserve=reserve, max_context=self.max_context)
        padding = 0 if self._static is None else bucket_of(draft_rows + 1)
        self._cache = self._empty_cache(len(ids) + reserve + draft_rows + padding)
        self._watch_layer(hidden_layer)
        needs_rows = prompt_hidden or prompt_top_ids
        with Capture(self.model.get_decoder() if needs_rows else None) as capture:
            positions = torch.arange(len(ids), device=self._input_device)
            logits, hidden = self._forward(self._tensor(ids), positions, None, logits_to_keep=1)
        self._cache.commit(range(len(ids)))
        if needs_rows and not torch.equal(capture.rows[-1:], hidden):
            raise UnsupportedModel(
                f"{type(self.model).__name__} changes hidden states between its decoder and its LM "
                "head: the hidden states of prompt positions cannot be taken from it"
            )
        return StepOutput(
            last_logits=logits[-1],
            last_hidden=hidden[-1],
            prompt_hidden=capture.rows if prompt_hidden else None,
            prompt_top_ids=self._top_ids(capture.rows) if prompt_top_ids else None,
            prompt_layer_hidden=self._layer.rows if self._layer else None,
        )

    @torch.inference_mode()
    def forward_tree(self, tree: DraftTree) -> TreeOutput:
        """See `TargetModel.forward_tree`."""
        if self.cache.num_tree_rows:
            raise RuntimeError("the last tree must be committed before the next one is forwarded")
        return self.extend_tree(tree)

    @torch.inference_mode()
    def extend_tree(self, tree: DraftTree) -> TreeOutput:
        """See `DraftingModel.extend_tree`."""
        num_committed, first = self.cache.num_committed, self.cache.num_tree_rows
        if first >= tree.num_nodes:
            raise ValueError(f"a tree of {tree.num_nodes} nodes adds nothing to {first} rows")
        ids, positions = tree.token_ids[first:], tree.depths[first:] + num_committed
        mask = self._tree_mask(tree, num_committed, first)
        if self._static is not None:
            return self._forward_static(ids, positions, mask)
        places = upload(positions, self._input_device)
        # One row that attends to all others needs no mask.
        is_all = len(mask) == 1 and bool(mask.all())
        logits, hidden = self._forward(
            upload(ids, self._input_device)[None],
            places,
            None if is_all else as_attention_mask(mask, self._input_device, self._additive),
        )
        layer_hidden = self._layer.rows if self._layer else None
        return TreeOutput(logits=logits, hidden=hidden, layer_hidden=layer_hidden)

    @torch.inference_mode()
    def commit(self, path: Sequence[int]) -> None:
        """See `TargetModel.commit`."""
        self.cache.commit(path)

    def truncate(self, num_rows: int) -> None:
        """See `DraftingModel.truncate`."""
        self.cache.truncate(num_rows)

    @torch.inference_mode()
    def last_logits_of(self, prompts: Sequence[Sequence[int]]) -> Float[Tensor, "b v"]:
        """See `BatchedModel.last_logits_of`."""
        ids = torch.tensor(prompts, device=self._input_device)
        logits: Tensor = self.model(input_ids=ids, use_cache=False, logits_to_keep=1).logits
        return logits[:, -1, : self.vocab_size]

    def generate(self, token_ids: Sequence[int], max_new_tokens: int, **kwargs: Any) -> list[int]:
        """See `GeneratingModel.generate`: a second reference for speed and ids."""
        return self.generate_batch([token_ids], max_new_tokens, **kwargs)[0]

    def generate_batch(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, **kwargs: Any
    ) -> list[list[int]]:
        """See `GeneratingModel.generate_batch`, and `methods.targets.generate` for its limits."""
        return greedy_answers(
            self.model,
            prompts,
            max_new_tokens,
            vocab_size=self.vocab_size,
            eos_ids=self.eos_ids,
            **kwargs,
        )

    def _forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, logits_to_keep: int = 0
    ) -> tuple[Float[Tensor, "n v"], Float[Tensor, "n d"]]:
        output = self.model(
            input_ids=ids,
            position_ids=positions[None],
            attention_mask=mask,
            use_cache=True,
            logits_to_keep=logits_to_keep,
            **{self._cache_argument: self._cache},
        )
        assert self._head_input is not None
        return output.logits[0, :, : self.vocab_size], self._head_input[0]

    def _top_ids(self, hidden: Float[Tensor, "s d"]) -> Int[np.ndarray, "s k"]:
        """The most probable tokens behind each row; caps and scales of logits keep their order."""
        head = self.model.get_output_embeddings()
        # In chunks: the logits of a long prompt would take gigabytes.
        chunks = [head(rows)[:, : self.vocab_size] for rows in torch.split(hidden, HEAD_CHUNK)]
        return np.concatenate([top_tokens(chunk, PROMPT_TOP_K).cpu().numpy() for chunk in chunks])

    def _watch_layer(self, share: float | None) -> None:
        """Keeps the outputs of one layer from now on, or of none."""
        if self._layer is not None:
            self._layer.__exit__()
            self._layer = None
        if share is None:
            return
        self._layer = Capture(inner_layer(self.model, share)).__enter__()

    def _tree_mask(
        self, tree: DraftTree, num_committed: int, first: int
    ) -> Bool[np.ndarray, "m rows"]:
        """What the nodes from `first` on attend to: committed rows, ancestors and themselves."""
        mask = np.ones((tree.num_nodes - first, num_committed + tree.num_nodes), dtype=bool)
        mask[:, num_committed:] = tree.ancestor_mask()[first:]
        return mask

    @property
    def _additive(self) -> torch.dtype | None:
        """Eager attention adds its mask to the scores: a boolean one would be silently wrong."""
        return self.model.dtype if self._attention == "eager" else None

    def _forward_static(
        self, ids: np.ndarray, positions: np.ndarray, mask: np.ndarray
    ) -> TreeOutput:
        """The same through the compiled forward; what it returns is overwritten by the next."""
        assert self._static is not None
        output, num_rows = self._static(
            ids,
            positions,
            mask,
            cache=self.cache,
            device=self._input_device,
            additive=self._additive,
            arguments={"use_cache": True, self._cache_argument: self._cache},
        )
        assert self._head_input is not None
        layer_hidden = self._layer.rows[:num_rows].clone() if self._layer else None
        return TreeOutput(
            logits=output.logits[0, :num_rows, : self.vocab_size].clone(),
            hidden=self._head_input[0, :num_rows].clone(),
            layer_hidden=layer_hidden,
        )

    def _empty_cache(self, num_rows: int) -> TreeCache:
        """The last cache, emptied, if it is large enough; else a larger one."""
        if self._cache is not None and self._cache.capacity >= num_rows:
            self._cache.clear()
            return self._cache
        self._cache = None  # Freed before the larger one is allocated.
        step = CAPACITY_STEP if self._static is None else COMPILED_CAPACITY_STEP
        capacity = -(-num_rows // step) * step
        # Cached in float64, keys and values are not converted again at every step.
        dtype = torch.float64 if self._attention == EXACT_ATTENTION else None
        return TreeCache(num_layers=self.config.num_hidden_layers, capacity=capacity, dtype=dtype)

    def _tensor(self, ids: list[int]) -> Tensor:
        return torch.tensor([ids], dtype=torch.long, device=self._input_device)

    @no_type_check  # torch.compile traces it, and cannot see through the checks of tests.
    def _keep_head_input(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self._head_input = args[0]


def _cache_argument(model: Any) -> str:
    """`cache` since transformers 5.24, `past_key_values` before."""
    parameters = inspect.signature(inspect.unwrap(type(model).forward)).parameters
    return "cache" if "cache" in parameters else "past_key_values"
