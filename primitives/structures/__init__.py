"""Data structures and algorithms that primitives share. They know no model.

What grows while it is used has `check_integrity()`.
"""
