"""Scores of a run's answers, by the scorer that each prompt's task names.

They are computed from the texts that a run recorded, after it: nothing here is timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from benchmarks.datasets.base import Dataset, Prompt
from benchmarks.records import Request
from benchmarks.scoring import SCORERS
from benchmarks.scoring.base import Score, Scorer
from benchmarks.scoring.score_rows import ARMS, ScoreRow

_NO_TASK = "without a task that says what is right"
_NO_CODE = "whose answers are programs (allow_code_execution=true runs them)"


def check_tasks(dataset: Dataset) -> None:
    """Refuses tasks that cannot be scored; runs no program, and can go before a long run.

    Raises:
        ValueError: If a prompt names an unknown scorer, or lacks the reference or data that its
            scorer needs; names the prompt.
    """
    scorers: dict[str, Scorer] = {}
    for prompt in dataset.prompts:
        if prompt.task is None:
            continue
        # An empty answer is compared with every reference, and has no code to run.
        scores = _score_texts(prompt, [""] * len(prompt.turns), scorers)
        if not scores:
            raise ValueError(
                f"prompt {prompt.prompt_id!r}: scorer {prompt.task.scorer!r} needs a reference, "
                "and no turn has one"
            )


def score_request(
    request: Request, prompt: Prompt, *, allow_code_execution: bool
) -> ScoreRow | None:
    """The score of one row.

    Args:
        request: The row.
        prompt: What it answers.
        allow_code_execution: Whether programs that the model wrote may be run.

    Returns:
        Its mean over the turns that have something to compare with; None if there is no such turn
        or no task, after an error, for the arm `generate`, and if it takes code that may not run.

    Raises:
        ValueError: If the prompt names an unknown scorer, or has not what its scorer needs.
    """
    if _obstacle(prompt, allow_code_execution) or request.arm not in ARMS:
        return None
    return _to_row(request, prompt, _score_texts(prompt, _texts(request), {}))


def score_run(
    requests: Sequence[Request],
    dataset: Dataset,
    *,
    allow_code_execution: bool,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[list[ScoreRow], str]:
    """The scores of all rows, each distinct answer to a prompt scored once.

    Args:
        requests: The rows of a run.
        dataset: The prompts that they answer.
        allow_code_execution: Whether programs that the model wrote may be run.
        progress: Told of each row, scored or not, with 1.

    Returns:
        The scores in the order of the rows; and how many prompts were not scored and why, empty if
        all were.

    Raises:
        ValueError: As `check_tasks`, or if a row answers a prompt that is not in the dataset.
    """
    check_tasks(dataset)
    prompts = {prompt.prompt_id: prompt for prompt in dataset.prompts}
    scorers: dict[str, Scorer] = {}
    known: dict[tuple[str, tuple[str, ...]], list[Score]] = {}
    rows: list[ScoreRow] = []
    obstacles: dict[str, str] = {}
    for request in requests:
        if request.prompt_id not in prompts:
            raise ValueError(
                f"prompt {request.prompt_id!r} of the run is not in the dataset {dataset.name}"
            )
        prompt = prompts[request.prompt_id]
        obstacle = _obstacle(prompt, allow_code_execution)
        if obstacle:
            obstacles[prompt.prompt_id] = obstacle
        elif request.arm in ARMS:
            key = prompt.prompt_id, _texts(request)
            if key not in known:
                known[key] = _score_texts(prompt, key[1], scorers)
            row = _to_row(request, prompt, known[key])
            rows += [] if row is None else [row]
        progress(1)
    return rows, _note(obstacles)


def _obstacle(prompt: Prompt, allow_code_execution: bool) -> str | None:
    """Why a prompt's answers are not scored, or None."""
    if prompt.task is None:
        return _NO_TASK
    is_forbidden = _scorer_class(prompt).runs_code and not allow_code_execution
    return _NO_CODE if is_forbidden else None


def _scorer_class(prompt: Prompt) -> type[Scorer]:
    assert prompt.task is not None
    try:
        return SCORERS.get(prompt.task.scorer)
    except ValueError as error:
        raise ValueError(f"prompt {prompt.prompt_id!r}: {error}") from error


def _score_texts(prompt: Prompt, texts: Sequence[str], scorers: dict[str, Scorer]) -> list[Score]:
    """Scores of the turns that have something to compare with; `scorers` keeps what is made."""
    cls = _scorer_class(prompt)
    scorer = scorers.setdefault(cls.name, cls())
    try:
        scores = [scorer.score(prompt, turn, text) for turn, text in enumerate(texts)]
    except ValueError as error:
        raise ValueError(f"prompt {prompt.prompt_id!r}: {error}") from error
    return [score for score in scores if score is not None]


def _texts(request: Request) -> tuple[str, ...]:
    return tuple(turn.text for turn in request.turns)


def _to_row(request: Request, prompt: Prompt, scores: Sequence[Score]) -> ScoreRow | None:
    if not scores:
        return None
    cls = _scorer_class(prompt)
    return ScoreRow(
        prompt_id=request.prompt_id,
        repeat=request.repeat,
        arm=request.arm,
        scorer=cls.name,
        metric=cls.metric,
        value=fmean(score.value for score in scores),
        detail=" | ".join(score.detail for score in scores if score.detail),
    )


def _note(obstacles: Mapping[str, str]) -> str:
    """`not scored: 3 prompts without ...; 2 prompts whose ...`."""
    counts = Counter(obstacles.values())
    parts = [f"{count} prompt{'s' * (count > 1)} {why}" for why, count in counts.items()]
    return f"not scored: {'; '.join(parts)}" if parts else ""
