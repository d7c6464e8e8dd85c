"""Data structures that primitives share, each with check_integrity(). They know no model."""
