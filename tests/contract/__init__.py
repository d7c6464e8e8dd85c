"""The contract of primitives and methods as code: `check_*` functions over every registered name.

A new primitive is picked up by discovery; its author writes nothing in here. What a component may
not hold to is written, with the reason, in `expected_failures.py`.
"""
