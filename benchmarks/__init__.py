"""What is measured, on which prompts, and what is written down: datasets, runner, records, metrics.

The runner holds the only clock. How a token is proposed or accepted is not the business of this
package: it is in `primitives` and `methods`.
"""
