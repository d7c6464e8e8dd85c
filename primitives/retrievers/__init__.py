"""Retrievers: propose continuations of the text so far. No tree shapes, no acceptance rules."""
