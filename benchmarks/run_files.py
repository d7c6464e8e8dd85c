"""Names of the files in a run folder; `run_folder` says what each of them holds."""

from __future__ import annotations

CONFIG = "config.yaml"
ENVIRONMENT = "env.json"
ROWS = "requests.jsonl"
SCORES = "scores.jsonl"
EXAMINED = "examination.json"
SUMMARY = "summary.json"
STATUS = "status.json"
LOCK = ".lock"
"""Held by the process that writes the folder."""
