"""Atomic primitives of speculative decoding: retrievers, tree builders and verifiers.

A retriever proposes continuations, a tree builder packs them into one draft tree, a verifier
decides which path of it the target model keeps. This package holds no model, opens no file, reads
no configuration and no clock: all of that is handed to it by `methods` and `benchmarks`.
"""
