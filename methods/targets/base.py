"""The protocol of a target model: the accelerated model, with a cache that commits a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from primitives.types import DraftTree


class ContextOverflow(ValueError):
    """A prompt (with its output budget) is longer than the target model can attend to."""


class UnsupportedModel(ValueError):
    """A model that cannot forward draft trees, or cannot drop rejected rows from its cache."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepOutput:
    """What a prefill leaves behind.

    Attributes:
        last_logits: Logits at the last prompt position.
        last_hidden: The vector that entered the LM head there.
        prompt_hidden: The same for all prompt positions, if asked for.
        prompt_top_ids: The `PROMPT_TOP_K` most probable tokens behind each prompt position, best
            first, if asked for.
        prompt_layer_hidden: The output of an inner layer at all prompt positions, if asked for.
    """

    last_logits: Float[Tensor, "v"]
    last_hidden: Float[Tensor, "d"]
    prompt_hidden: Float[Tensor, "s d"] | None = None
    prompt_top_ids: Int[np.ndarray, "s k"] | None = None
    prompt_layer_hidden: Float[Tensor, "s d"] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeOutput:
    """What a tree forward gives; row i belongs to node i.

    Attributes:
        logits: Predictions of what follows each node.
        hidden: The vectors that entered the LM head.
        layer_hidden: The output of the inner layer that the prefill was asked for.
    """

    logits: Float[Tensor, "n v"]
    hidden: Float[Tensor, "n d"]
    layer_hidden: Float[Tensor, "n d"] | None = None


@runtime_checkable
class TargetModel(Protocol):
    """A causal language model with a cache that keeps one path of the last tree.

    Attributes:
        vocab_size: Ids in [0, vocab_size) are tokens; logits have that many columns.
        eos_ids: Ids that end a generation; may be empty.
        max_context: Most rows that the cache may hold, in tokens; None if unlimited.
        num_committed: Rows in the cache, in tokens.
    """

    @property
    def vocab_size(self) -> int: ...
    @property
    def eos_ids(self) -> frozenset[int]: ...
    @property
    def max_context(self) -> int | None: ...
    @property
    def num_committed(self) -> int: ...

    def reset(self) -> None:
        """Empties the cache."""

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
        """Forwards and commits a prompt into an empty cache.

        Args:
            token_ids: At least one id.
            reserve: Positions behind the prompt that the output may reach, in tokens.
            draft_rows: Rows of a tree beyond those positions; they take memory, not context.
            prompt_hidden: Whether to keep the LM head's input at every position.
            prompt_top_ids: Whether to keep the most probable tokens behind every position.
            hidden_layer: The layer whose output is kept at every position and, until the next
                prefill, at every node, as a share in (0, 1] of the layers; None for no layer.

        Raises:
            ContextOverflow: If prompt and reserve exceed `max_context`.
            ValueError: If the prompt is empty or holds an id outside the vocabulary.
        """
        ...

    def forward_tree(self, tree: DraftTree) -> TreeOutput:
        """Forwards all nodes: each attends to the committed rows, its ancestors and itself."""
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keeps the rows of the path's nodes, drops the other rows of the last tree."""


@runtime_checkable
class GeneratingModel(Protocol):
    """A target model whose library decodes greedily by itself, too."""

    def generate(self, token_ids: Sequence[int], max_new_tokens: int, **kwargs: Any) -> list[int]:
        """The library's greedy answer.

        Args:
            token_ids: The prompt.
            max_new_tokens: Output budget, in tokens.
            kwargs: Options of the library.

        Returns:
            The output ids, EOS included.
        """
        ...

    def generate_batch(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, **kwargs: Any
    ) -> list[list[int]]:
        """As `generate`, for several prompts at a time."""
        ...


@runtime_checkable
class EmbeddingModel(Protocol):
    """A target model that shows the table of its input embeddings.

    Attributes:
        embeddings: Row i is the vector of token i.
    """

    @property
    def embeddings(self) -> Float[Tensor, "v d"]: ...


@runtime_checkable
class BatchedModel(Protocol):
    """A target model that reads several prompts in one forward."""

    def last_logits_of(self, prompts: Sequence[Sequence[int]]) -> Float[Tensor, "b v"]:
        """Logits behind each of some prompts of one length; the cache stays as it is."""
        ...


def check_prompt(
    token_ids: Sequence[int], *, vocab_size: int, reserve: int, max_context: int | None
) -> None:
    """The checks that every target makes before a prefill.

    Raises:
        ContextOverflow: If prompt and reserve exceed `max_context`.
        ValueError: If the prompt is empty or holds an id outside the vocabulary.
    """
    if len(token_ids) == 0:
        raise ValueError("the prompt is empty: a target model needs at least one token")
    outside = next((t for t in token_ids if not 0 <= t < vocab_size), None)
    if outside is not None:
        raise ValueError(f"token ids must be in [0, {vocab_size}), got {outside}")
    if max_context is not None and len(token_ids) + reserve > max_context:
        raise ContextOverflow(
            f"prompt ({len(token_ids)} tokens) and output budget ({reserve} tokens) "
            f"exceed the {max_context} tokens that the target model can attend to"
        )


@runtime_checkable
class TextCodec(Protocol):
    """Turns a conversation into prompt ids, and output ids into text.

    Attributes:
        eos_id: The id that ends an answer; None if the tokenizer has none.
    """

    @property
    def eos_id(self) -> int | None: ...

    def encode(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Prompt ids of a conversation.

        Args:
            messages: Pairs (role, text), alternating `user` and `assistant`, `user` last.
        """
        ...

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text as it would stand in an answer: no template, no special tokens."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of output ids, special tokens left out."""
        ...

    def ids_by_token(self) -> Mapping[str, int]:
        """All tokens of the tokenizer, as it writes them, with their ids."""
        ...
