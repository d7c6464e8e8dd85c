"""Exceptions to the contract, as data. Each entry carries its reason; a stale one fails a test.

* `EXPECTED_FAILURES`: name -> {check: reason}; the check must fail (strict xfail).
* `INERT_FIELDS`: name -> {field: reason}; moving the field changes no answer of the probes.
* `FIELD_VALUES`: name -> {field: values}; what to probe with where the type does not suggest any.
* `ACCEPTED_VALUES`: name -> {field: reason}; takes the value that is bad for most fields.
"""

from __future__ import annotations

from typing import Any

EXPECTED_FAILURES: dict[str, dict[str, str]] = {
    "never": {"check_some_context_has_candidates": "a control that proposes nothing"},
    "prompt_lookup_ranked": {
        "check_longest_match_comes_first": "ranks places of pending by hidden states",
    },
    "reference_copy": {
        "check_longest_match_comes_first": "a match lies in the output, and its copy in the prompt",
    },
}
INERT_FIELDS: dict[str, dict[str, str]] = {
    "hybrid": {
        "prune_by": "read with rule=fuse only",
        "prune_top_k": "read with rule=fuse only",
        "max_leaves": "read with rule=extend only",
    },
    "oracle": {"seed": "read with accuracy below 1 only"},
    "draft_model": {
        "temperature": "read with sampled drafts only",
        "top_k": "read with shape=tree only",
        "total_nodes": "read with shape=tree only",
    },
    "conditional": {"eos_requires_em": "no id ends a generation in the probes"},
    "arc": {
        "c_l": "the probes' embeddings are so close that the other surrogate decides",
        "boost": "read with rule=sampling only",
        "siblings": "read with rule=sampling only",
        "eos_requires_em": "no id ends a generation in the probes",
    },
    "fly": {
        "rule": "the probes are too short for a window of six",
        "gate": "the probes are too short for a window of six",
        "theta": "the probes are too short for a window of six",
        "eos_requires_em": "no id ends a generation in the probes",
    },
    "fuzzy": {"eos_requires_em": "no id ends a generation in the probes"},
    "judge": {
        "head": "the file is opened outside, and the head handed over",
        "eos_requires_em": "no id ends a generation in the probes",
    },
    "mars": {
        "max_margin": "read with form=margin only",
        "min_ratio": "read with form=prob_ratio only",
        "eos_requires_em": "no id ends a generation in the probes",
    },
    "topk": {"eos_requires_em": "no id ends a generation in the probes"},
    "typical": {"eos_requires_em": "no id ends a generation in the probes"},
    "next_next_token": {
        "middle_rank": "the probes see the first ranks only",
        "middle_len": "the probes see the first ranks only",
        "far_len": "the probes see the first ranks only",
    },
    "prompt_lookup_ranked": {"layer": "the probes make up the states of one layer"},
    "semantic": {"max_ngram": "read with fallback=prompt_lookup only"},
    "soft_gated": {"eos_requires_em": "no id ends a generation in the probes"},
    "suffix_automaton": {
        "use_static": "no match in the toy store is longer by more than len_bias",
        "width": "read with a corpus only, which the probes do without",
        "len_bias": "read with a corpus only, which the probes do without",
        "num_tokens": "read with rule=combined only",
        "len_threshold": "read with rule=combined only",
    },
}
FIELD_VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
    "hybrid": {
        "retrievers": ([{"name": "prompt_lookup"}, {"name": "aligned_prompt_lookup"}],),
        "min_match_len": (1, 2),  # Long matches are rare in the probes.
    },
    "sequoia": {"acceptance": ([0.5], [0.5, 0.4]), "row_costs": ([1.0, 1.1, 1.9, 3.0],)},
    # The probes have six tokens and take four candidates at most.
    "next_next_token": {"num_guesses": (1, 2), "near_rank": (0, 1)},
    "semantic": {"num_candidates": (1, 2)},  # The probes take four candidates at most.
    # Embeddings of the probes are closer than a model's.
    "arc": {"tau_delta": (1e-4,), "theta": (0.999,)},
    "judge": {"head": ("judge.safetensors",)},
    "soft_gated": {"window": (3, 7), "max_consecutive_relaxed": (1, 2)},
    # The toy store has n-grams of up to four tokens, and all of up to two.
    "ngram_trees": {"max_ngram": (1, 2), "min_ngram": (3, 4)},
    "static_template": {"template": ([[0]], [[0], [1]])},
    # The first four nodes of the template have ranks 0 and 1.
    "token_recycling": {"num_successors": (1,), "template": ([[0]], [[0], [1]])},
    # Long matches are rare in a toy store, and the best four prefixes are short.
    "suffix_array": {"max_ngram": (2, 3), "num_tokens": (1, 2), "max_hits": (1, 3)},
    "suffix_automaton": {"max_tokens": (2, 3)},  # The probes' texts are short.
    "suffix_tree": {
        "max_depth": (2, 4),
        "num_tokens": (1, 2),
        "max_cached_requests": (0, 1),
        "offset": (-1.0, 1.0),
    },
}
ACCEPTED_VALUES: dict[str, dict[str, str]] = {}
