"""The n-grams of a growing text, each with the one place that it is continued from.

Read from left to right, an occurrence takes over an n-gram if at least as many tokens follow it as
follow the one before, `num_tokens` at most. So an n-gram is continued from its most recent
occurrence that `num_tokens` tokens follow; without one, from its first, which has the most behind
it. A text that grows lets occurrences become complete one after the other, and that is all that
has to be noted:

    text a b c a b d, num_tokens 2     "a b" is complete at 2 (c a); at 5 only d follows
    text a b c a b d e                 now "a b" is complete at 5, too (d e), and is moved there

Source: the pool of LogitSpec (Liu et al. 2025, arXiv 2507.01449; repository smart-lty/LogitSpec),
which stores the continuations and reads the last 2 * num_tokens positions anew after each step.
Cost: O(max_ngram^2) per appended token and per look-up; an entry per distinct n-gram.
"""

from __future__ import annotations

from collections.abc import Sequence


class ContinuationPool:
    """Where the n-grams of a text are continued.

    Args:
        max_ngram: Longest n that is kept, in tokens, at least 1.
        num_tokens: Tokens behind an occurrence that make it complete, at least 1.
    """

    def __init__(self, *, max_ngram: int, num_tokens: int) -> None:
        self.max_ngram, self.num_tokens = max_ngram, num_tokens
        self._text: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}

    def append(self, token_ids: Sequence[int]) -> None:
        """Adds tokens to the end of the text."""
        text, num_before = self._text, len(self._text)
        text.extend(token_ids)
        num_complete = len(text) - self.num_tokens + 1  # Ends before it have all tokens behind.
        for end in range(max(num_before - self.num_tokens + 1, 1), num_complete):
            for ngram in self._ngrams_before(end):
                self._ends[ngram] = end
        for end in range(max(num_before, num_complete, 1), len(text)):
            for ngram in self._ngrams_before(end):
                self._ends.setdefault(ngram, end)

    def longest_match(self, query: Sequence[int]) -> tuple[int, int]:
        """The longest end of the query that is in the pool.

        Returns:
            Its length and the position that it is continued from; (0, 0) if there is none.
        """
        for length in range(min(self.max_ngram, len(query)), 0, -1):
            end = self._ends.get(tuple(query[-length:]))
            if end is not None:
                return length, end
        return 0, 0

    def continuation(self, end: int, length: int) -> list[int]:
        """Up to `length` tokens from a position on."""
        return self._text[end : end + length]

    def check_integrity(self) -> None:
        """Raises an AssertionError unless every n-gram is where the rule puts it; O(s) time."""
        expected: dict[tuple[int, ...], int] = {}
        for end in range(1, len(self._text)):
            for ngram in self._ngrams_before(end):
                if end + self.num_tokens <= len(self._text) or ngram not in expected:
                    expected[ngram] = end
        assert self._ends == expected, "an n-gram is continued from the wrong place"

    def _ngrams_before(self, end: int) -> list[tuple[int, ...]]:
        text, longest = self._text, min(self.max_ngram, end)
        return [tuple(text[end - length : end]) for length in range(1, longest + 1)]
