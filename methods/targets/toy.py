"""A float64 target model with a tiny vocabulary: an exact, cheap function of the prefix.

The logits depend on the last two tokens (a random table) and on what followed the most recent
earlier occurrence of the last token (a bonus, so that copying drafts pay off as in real text).
It is stateless but for the committed ids: a tree forward evaluates each node's own prefix, so it
shares no code and no mistake with masks, positions or caches.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from methods.targets.base import StepOutput, TreeOutput, check_prompt
from primitives.fields import check_range
from primitives.structures.top_tokens import top_tokens
from primitives.types import PROMPT_TOP_K, DraftTree

LOGIT_SCALE = 2.0
"""The toy's LM head is this multiple of the identity, so hidden states are logits / LOGIT_SCALE."""
MAX_VOCAB_SIZE = 512
"""The table of the law takes 1 GiB then: 8 bytes per three tokens."""


@dataclass(kw_only=True)
class ToyTarget:
    """An exact target for tests and for trying primitives out.

    Attributes:
        vocab_size: Tokens in the vocabulary, in [2, `MAX_VOCAB_SIZE`].
        seed: Seed of the random table.
        eos_id: Ends a generation; None for never.
        eos_logit: Added to the logit of `eos_id`; negative values make outputs longer.
        copy_bonus: Added to the logit of the token that followed the last occurrence of the last
            token; 0 makes copying drafts worthless.
        max_context: Most tokens the toy accepts; None if unlimited.
    """

    vocab_size: int = 32
    seed: int = 0
    eos_id: int | None = 0
    eos_logit: float = -1.0
    copy_bonus: float = 3.0
    max_context: int | None = None
    _committed: list[int] = field(default_factory=list, init=False, repr=False, compare=False)
    _tree: DraftTree | None = field(default=None, init=False, repr=False, compare=False)
    _table: np.ndarray = field(init=False, repr=False, compare=False)
    _hidden_layer: float | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "vocab_size", least=2, most=MAX_VOCAB_SIZE)
        if self.eos_id is not None and not 0 <= self.eos_id < self.vocab_size:
            raise ValueError(f"eos_id must be in [0, {self.vocab_size}), got {self.eos_id}")
        shape = (self.vocab_size, self.vocab_size, self.vocab_size)
        self._table = np.random.default_rng(self.seed).normal(0.0, 1.5, shape)

    @property
    def eos_ids(self) -> frozenset[int]:
        """At most one id."""
        return frozenset() if self.eos_id is None else frozenset({self.eos_id})

    @property
    def embeddings(self) -> Float[Tensor, "v v"]:
        """Made up: all tokens are equally far apart."""
        return torch.eye(self.vocab_size, dtype=torch.float64)

    @property
    def num_committed(self) -> int:
        """Committed tokens."""
        return len(self._committed)

    @property
    def committed_ids(self) -> tuple[int, ...]:
        """The committed ids themselves, for tests."""
        return tuple(self._committed)

    def reset(self) -> None:
        """Forgets the committed ids."""
        self._committed, self._tree = [], None

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
        """See `TargetModel.prefill`."""
        ids = [int(token_id) for token_id in token_ids]
        check_prompt(ids, vocab_size=self.vocab_size, reserve=reserve, max_context=self.max_context)
        self._committed, self._tree, self._hidden_layer = ids, None, hidden_layer
        is_asked = prompt_hidden or prompt_top_ids or hidden_layer is not None
        num_rows = len(ids) if is_asked else 1
        every = torch.stack([self.logits(ids[: len(ids) - i]) for i in range(num_rows)][::-1])
        return StepOutput(
            last_logits=every[-1],
            last_hidden=every[-1] / LOGIT_SCALE,
            prompt_hidden=every / LOGIT_SCALE if prompt_hidden else None,
            prompt_top_ids=top_tokens(every, PROMPT_TOP_K).numpy() if prompt_top_ids else None,
            prompt_layer_hidden=self._layer_hidden(every),
        )

    def forward_tree(self, tree: DraftTree) -> TreeOutput:
        """See `TargetModel.forward_tree`."""
        return self._forward(tree, 0)

    def extend_tree(self, tree: DraftTree) -> TreeOutput:
        """See `DraftingModel.extend_tree`; checks that the last tree is the beginning of this."""
        last = self._tree
        first = 0 if last is None else last.num_nodes
        if first >= tree.num_nodes:
            raise ValueError(f"a tree of {tree.num_nodes} nodes adds nothing to {first} rows")
        for name in ("token_ids", "parents") if last is not None else ():
            if not np.array_equal(getattr(last, name), getattr(tree, name)[:first]):
                raise ValueError(f"a tree that extends the last one has other {name}")
        return self._forward(tree, first)

    def _forward(self, tree: DraftTree, first: int) -> TreeOutput:
        """The nodes from `first` on."""
        if not self._committed:
            raise RuntimeError("forward_tree needs a prefill first")
        self._tree = tree
        nodes = range(first, tree.num_nodes)
        paths = [[int(tree.token_ids[i]) for i in tree.path_to(node)] for node in nodes]
        logits = torch.stack([self.logits(self._committed + path) for path in paths])
        return TreeOutput(
            logits=logits,
            hidden=logits / LOGIT_SCALE,
            layer_hidden=self._layer_hidden(logits),
        )

    def _layer_hidden(self, logits: Float[Tensor, "n v"]) -> Float[Tensor, "n v"] | None:
        """Made up: the deeper the layer, the more it resembles the last one."""
        if self._hidden_layer is None:
            return None
        share = self._hidden_layer
        return (share * logits + (1 - share) * logits.roll(1, dims=-1)) / LOGIT_SCALE

    def commit(self, path: Sequence[int]) -> None:
        """See `TargetModel.commit`; checks that the path follows parents."""
        if self._tree is None:
            raise RuntimeError("commit needs a forward_tree first")
        is_inside = bool(path) and path[-1] < self._tree.num_nodes
        if not is_inside or list(path) != self._tree.path_to(path[-1]):
            raise ValueError(f"path {list(path)} is no path of the last tree from depth 0")
        self._committed += [int(self._tree.token_ids[node]) for node in path]
        self._tree = None

    def truncate(self, num_rows: int) -> None:
        """See `DraftingModel.truncate`."""
        if not 0 <= num_rows <= len(self._committed):
            raise ValueError(f"num_rows must be in [0, {len(self._committed)}], got {num_rows}")
        self._committed, self._tree = self._committed[:num_rows], None

    def logits(self, prefix: Sequence[int]) -> Float[Tensor, "v"]:
        """The law of the next token, for any non-empty prefix."""
        previous = prefix[-2] if len(prefix) > 1 else prefix[-1]
        logits = self._table[previous, prefix[-1]].copy()
        earlier = next((i for i in range(len(prefix) - 2, -1, -1) if prefix[i] == prefix[-1]), None)
        if earlier is not None:
            logits[prefix[earlier + 1]] += self.copy_bonus
        if self.eos_id is not None:
            logits[self.eos_id] += self.eos_logit
        return torch.from_numpy(logits)


@dataclass(frozen=True, kw_only=True)
class ToyCodec:
    """Words to ids by a checksum, ids to words by number; only good for trying things out.

    Attributes:
        vocab_size: Tokens in the vocabulary; id 0 (the toy's EOS) is never made from text.
    """

    vocab_size: int = 32

    @property
    def eos_id(self) -> int | None:
        """The toy's EOS."""
        return 0

    def encode(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """One id per word; the empty conversation has no ids."""
        return [token_id for _, text in messages for token_id in self.encode_text(text)]

    def encode_text(self, text: str) -> list[int]:
        """One id per word."""
        return [1 + zlib.crc32(word.encode()) % (self.vocab_size - 1) for word in text.split()]

    def decode(self, token_ids: Sequence[int]) -> str:
        """`t5 t7 t1`."""
        return " ".join(f"t{token_id}" for token_id in token_ids)

    def ids_by_token(self) -> dict[str, int]:
        """`t0`, `t1` and so on."""
        return {self.decode([token_id]): token_id for token_id in range(self.vocab_size)}
