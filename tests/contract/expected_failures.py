"""Exceptions to the contract, as data. Each entry carries its reason; a stale one fails a test.

* `EXPECTED_FAILURES`: name -> {check: reason}; the check must fail (strict xfail).
* `INERT_FIELDS`: name -> {field: reason}; moving the field changes no answer of the probes.
* `FIELD_VALUES`: name -> {field: values}; what to probe with where the type does not suggest any.
* `ACCEPTED_VALUES`: name -> {field: reason}; takes the value that is bad for most fields.
"""

from __future__ import annotations

from typing import Any

EXPECTED_FAILURES: dict[str, dict[str, str]] = {}
INERT_FIELDS: dict[str, dict[str, str]] = {
    "conditional": {"eos_requires_em": "no id ends a generation in the probes"},
    "semantic": {"max_ngram": "read with fallback=prompt_lookup only"},
    "soft_gated": {"eos_requires_em": "no id ends a generation in the probes"},
}
FIELD_VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
    "semantic": {"num_candidates": (1, 2)},  # The probes take four candidates at most.
    "soft_gated": {"window": (3, 7), "max_consecutive_relaxed": (1, 2)},
    # Long matches are rare in a toy store, and the best four prefixes are short.
    "suffix_array": {"max_ngram": (2, 3), "num_tokens": (1, 2), "max_hits": (1, 3)},
}
ACCEPTED_VALUES: dict[str, dict[str, str]] = {}
