"""Leaderboards: finished runs, ranked where they were measured under equal conditions.

`conditions` says what must be equal, `entries` what is known of one run, `boards` groups and ranks,
`columns` turns entries into text, and `markdown`, `page` (HTML), `latex` and `tidy` (CSV) write it.
Nothing is measured here, and no figure is changed: all of them stand in the runs' summaries.
"""

from benchmarks.leaderboard.boards import Board, Leaderboard, Row, build_leaderboard

__all__ = ["Board", "Leaderboard", "Row", "build_leaderboard"]
