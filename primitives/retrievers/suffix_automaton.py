"""SAM decoding: what followed the longest earlier occurrence of the text's end, however long.

A suffix automaton of the text finds the longest match of its end (pending included) in amortised
constant time, and drafts what followed its first occurrence; an automaton of a corpus may do the
same, if its match is longer by more than `len_bias`.

    alone     min(max_tokens, 1 + floor(alpha * match_len)) tokens; from the corpus a tree of the
              most probable nodes, where a node's probability given its parent is count / count
    combined  num_tokens tokens, if the match has at least len_threshold of them, else no draft

Source: Hu et al. 2024, SAM-Decoding (arXiv 2411.10666), and the authors' repository
hyx1999/SAM-Decoding (folder samd_sam_only for `alone`, samd for `combined`).
Cost: O(1) amortised per observed token, O(draft length) per propose; the automaton of a corpus is
built in `attach`, in memory (about 140 bytes per token).
Deviations: `combined` is half a method: the `hybrid` retriever hands over to another one where this
one drafts nothing. A draft ends with the text or the document, where the original pads it with
token 0. In `combined`, shorter matches are tried until one has all `num_tokens` behind it, and of
those that are tried the one with most behind it is used; the original counts the text without
pending, and so asks for two tokens more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Int

from primitives.fields import check_range, check_words
from primitives.interfaces import DatastoreKind, Retriever
from primitives.registry import RETRIEVERS
from primitives.structures.corpus_automaton import CorpusAutomaton
from primitives.structures.suffix_array import TokenStore
from primitives.structures.suffix_automaton import SEPARATOR, SuffixAutomaton
from primitives.types import MAX_CHILDREN, MAX_DRAFT_NODES, Candidate, Context, StepOutcome

Match = tuple[int, int]


@RETRIEVERS.register("suffix_automaton")
@dataclass(kw_only=True)
class SuffixAutomatonRetriever(Retriever):
    """Longest match in the text so far, and in a corpus.

    Attributes:
        rule: How long drafts are: `alone` by the match, `combined` fixed or none.
        use_static: Whether a corpus is searched, too.
        max_tokens: `alone`: most tokens of a draft, pending included, in [2, 1024].
        alpha: `alone`: draft tokens per matched token, above 0.
        width: `alone`: most nodes per depth, and children per node, of drafts from the corpus,
            in [1, 64].
        num_tokens: `combined`: tokens of a draft, pending included, in [2, 1024].
        len_threshold: `combined`: shortest match that is used, in tokens, at least 1.
        len_bias: How many tokens a match in the corpus counts less, at least 0.
    """

    datastore = "tokens"
    is_exact = True

    rule: Literal["alone", "combined"] = "alone"
    use_static: bool = False
    max_tokens: int = 60
    alpha: float = 4.0
    width: int = 8
    num_tokens: int = 40
    len_threshold: int = 5
    len_bias: int = 5
    _static: CorpusAutomaton | None = field(default=None, init=False, repr=False, compare=False)
    _dynamic: SuffixAutomaton | None = field(default=None, init=False, repr=False, compare=False)
    _match: Match = field(default=(0, 0), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_words(self)
        check_range(self, "max_tokens", "num_tokens", least=2, most=MAX_DRAFT_NODES)
        check_range(self, "width", least=1, most=MAX_CHILDREN)
        check_range(self, "len_threshold", least=1)
        check_range(self, "len_bias", least=0)
        check_range(self, "alpha", above=0, below=math.inf)

    @property
    def wanted_datastore(self) -> DatastoreKind | None:
        """None without `use_static`."""
        return self.datastore if self.use_static else None

    def attach(self, store: TokenStore) -> None:
        """Builds the automaton of a corpus.

        Raises:
            TypeError: Without `use_static`.
            ValueError: If the store holds more than 2^28 tokens.
        """
        if not self.use_static:
            super().attach(store)
        self._static = CorpusAutomaton.from_store(store)

    def begin(self, context: Context) -> None:
        """Learns the prompt.

        Raises:
            RuntimeError: With `use_static`, if no store was attached.
        """
        if self.use_static and self._static is None:
            raise RuntimeError(f"retriever {self.name!r} has no datastore: attach one")
        self._dynamic, self._match = SuffixAutomaton(2 * len(context.token_ids)), (0, 0)
        self._learn(context.token_ids)

    def observe(self, outcome: StepOutcome) -> None:
        """Learns the committed tokens."""
        self._learn(outcome.token_ids)

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        """A chain; or the paths of a tree, by the expected number of accepted tokens."""
        assert self._dynamic is not None
        pending = [context.pending_id]
        automaton, text = self._dynamic, context.ids_with_pending
        match = automaton.track(automaton.match_of_end(), pending)
        num, source = self._num_draft_tokens(match[1]), "dynamic"
        if self._static is not None:
            static = self._static.track(self._match, pending)
            if static[1] - self.len_bias > match[1]:
                num, source = self._num_draft_tokens(static[1] - self.len_bias), "static"
                automaton, text, match = self._static, self._static.text, static
        if num == 0 or limit == 0:
            return []
        if source == "static" and self.rule == "alone":
            return self._tree(match, num, context)[:limit]
        tail, match = self._tail(automaton, match, text, num)
        candidate = Candidate(
            token_ids=context.until_eos((context.pending_id, *tail)),
            score=float(match[1]),
            match_len=match[1],
            recency=automaton.first_end(match[0]),
            source=source,
        )
        return [candidate] if tail else []

    def check_integrity(self) -> None:
        """Checks the automaton of the text."""
        if self._dynamic is not None:
            self._dynamic.check_integrity()

    def _learn(self, token_ids: Int[np.ndarray, "k"]) -> None:
        assert self._dynamic is not None
        self._dynamic.extend(token_ids)
        if self._static is not None:
            self._match = self._static.track(self._match, token_ids)

    def _num_draft_tokens(self, match_len: int) -> int:
        """Behind pending; 0 for no draft."""
        if self.rule == "combined":
            return self.num_tokens - 1 if match_len >= self.len_threshold else 0
        return min(self.max_tokens - 1, int(self.alpha * match_len))

    def _tail(
        self, automaton: SuffixAutomaton, match: Match, text: Int[np.ndarray, "n"], num: int
    ) -> tuple[list[int], Match]:
        """What stands behind the first occurrence of a match, or of one with more behind it."""
        tail, shorter = _behind(text, automaton.first_end(match[0]), num), match
        while self.rule == "combined" and len(tail) < num:
            shorter = automaton.link(shorter[0])
            if shorter[0] == 0:
                break
            other = _behind(text, automaton.first_end(shorter[0]), num)
            if len(other) > len(tail):
                match, tail = shorter, other
        return tail, match

    def _tree(self, match: Match, num: int, context: Context) -> list[Candidate]:
        assert self._static is not None
        return [
            Candidate(
                token_ids=(context.pending_id, *path.token_ids),
                score=path.score,
                match_len=match[1],
                recency=path.recency,
                source="static",
                count=path.num_occurrences,
                token_probs=(1.0, *path.token_probs),
            )
            for path in self._static.draft(match, num, self.width).paths(context.eos_ids)
        ]


def _behind(text: Int[np.ndarray, "n"], start: int, num: int) -> list[int]:
    """Up to `num` ids, no further than the end of the document."""
    ids: list[int] = text[start : start + num].tolist()
    return ids[: ids.index(SEPARATOR)] if SEPARATOR in ids else ids
