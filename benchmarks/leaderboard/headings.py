"""What stands around the tables: sections, their conditions, and titles."""

from __future__ import annotations

from benchmarks.leaderboard.boards import Board, Leaderboard
from benchmarks.leaderboard.conditions import Facts

TITLE = "Leaderboard"
LEFT_OUT = "In no table"


def sections(leaderboard: Leaderboard) -> list[list[Board]]:
    """Boards under one heading: equal in all but the model."""
    found: dict[tuple[str, tuple[Facts, Facts, Facts]], list[Board]] = {}
    for board in leaderboard.boards:
        conditions = board.conditions
        found.setdefault((conditions.dataset, conditions.shown), []).append(board)
    return list(found.values())


def heading(board: Board) -> str:
    """Device, data and budget, as the title of a section."""
    settings = dict(board.conditions.settings)
    parts = [board.conditions.dataset]
    if "prompts" in settings:
        parts.append(f"{settings['prompts']} prompts")
    if "max_new_tokens" in settings:
        parts.append(f"up to {settings['max_new_tokens']} tokens")
    return f"{device_text(board.conditions.device)}: {', '.join(parts)}"


def subheading(board: Board) -> str:
    """The model, with what sets the table apart from others that look alike."""
    differing = _join(board.differing)
    return f"{board.conditions.model} ({differing})" if differing else board.conditions.model


def device_text(device: Facts) -> str:
    """Such as `Intel(R) Xeon(R) Processor, 2 threads` or `2 x NVIDIA A100`."""
    facts = dict(device)
    number = f"{facts['number']} x " if "number" in facts else ""
    threads = f", {facts['threads']} threads" if "threads" in facts else ""
    return f"{number}{facts['name']}{threads}"


def bullets(board: Board) -> list[tuple[str, str]]:
    """The conditions of a section, named as Spec-Bench names them."""
    conditions = board.conditions
    lines = [
        ("Device", device_text(conditions.device)),
        ("Testing environment", _join(conditions.environment)),
        ("Experimental Settings", _join(conditions.settings)),
    ]
    return [line for line in lines if line[1]]


def caption(board: Board) -> str:
    """All of it in one sentence."""
    texts = "; ".join(text for _, text in bullets(board))
    return f"{subheading(board)} on {board.conditions.dataset}. {texts}."


def _join(facts: Facts) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts)
