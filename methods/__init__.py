"""Primitives put together: the decode loop, target models, the sampling law, config -> objects.

What is measured, on which prompts, and what is written down is the business of `benchmarks`: this
package never reads a clock, a dataset or a results folder.
"""
