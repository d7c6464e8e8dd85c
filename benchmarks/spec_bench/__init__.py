"""Answer files of Spec-Bench and its relatives: read, checked, imported as results, and written.

Nothing is measured here; `benchmarks/conventions.py` derives other people's numbers from own rows.
"""
