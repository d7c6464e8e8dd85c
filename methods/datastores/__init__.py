"""Datastores on disk: built once, checked on opening, mapped into memory, never changed.

`folder` is what all kinds share (header, checks, a build that is complete or absent); `tokens` and
`hidden_states` hold texts, `bigrams` and `ngram_trees` are derived from a model and a token store.
"""
