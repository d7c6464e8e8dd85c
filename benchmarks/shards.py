"""One run in several jobs: each measures every n-th prompt, the last one to end puts them together.

    <run-id>/shards/1-of-3/   a run folder: the rows of prompts 0, 3, 6, ...
    <run-id>/shards/2-of-3/   prompts 1, 4, 7, ...
    <run-id>/                 all rows, once every shard is done

A shard measures its own vanilla baseline, on the machine where it runs the method. Times of
different kinds of machines are never put together: such a run ends as failed, and says which shards
to measure again. Shards have the run id of the whole, so that it does not matter how a run was cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchmarks.files import RunFolderError, explain_os_errors, read_json, write_json
from benchmarks.provenance import machine_kind
from benchmarks.records import Request
from benchmarks.row_log import read_requests
from benchmarks.run_files import ENVIRONMENT, LOCK, ROWS, STATUS
from benchmarks.run_folder import PATIENCE_S

FOLDER = "shards"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Which part of a run a job measures.

    Attributes:
        index: From 1.
        num_shards: How many parts there are, at least 1.
    """

    index: int
    num_shards: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.num_shards:
            raise ValueError(
                f"shard must be i/n with 1 ≤ i ≤ n, got {self.index}/{self.num_shards}"
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """`2/8` -> the second of eight.

        Raises:
            ValueError: If it is nothing of the kind.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if match is None:
            raise ValueError(f"shard must be i/n, e.g. 1/8, got {text!r}")
        return cls(index=int(match[1]), num_shards=int(match[2]))

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.index}-of-{self.num_shards}"

    def indices(self, num_prompts: int) -> range:
        """Its prompts: every n-th one, so that shards are alike in categories and lengths."""
        return range(self.index - 1, num_prompts, self.num_shards)

    def path(self, run: Path) -> Path:
        """Its run folder inside the run's."""
        return run / FOLDER / self.name


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What the shards of a run have measured.

    Attributes:
        requests: All rows, in the order of the prompts.
        sessions: All sessions, in the order of the shards; rows name them by their index.
    """

    requests: list[Request]
    sessions: list[Mapping[str, Any]]


def missing_shards(run: Path, num_shards: int) -> list[Shard]:
    """Those that are not done."""
    shards = [Shard(index=i + 1, num_shards=num_shards) for i in range(num_shards)]
    return [shard for shard in shards if not is_finished(shard.path(run))]


def gather(run: Path, num_shards: int, prompt_ids: Sequence[str]) -> Gathered:
    """Puts the rows of all shards together.

    Args:
        run: The run folder.
        num_shards: How many there are; all are done.
        prompt_ids: In the order of the dataset.

    Raises:
        RunFolderError: If they were measured on different kinds of machines, or a file is damaged.
    """
    requests: list[Request] = []
    sessions: list[Mapping[str, Any]] = []
    kinds: dict[str, list[str]] = {}
    for index in range(1, num_shards + 1):
        shard = Shard(index=index, num_shards=num_shards)
        env = read_json(shard.path(run) / ENVIRONMENT)
        if env is None:
            raise RunFolderError(f"{shard.path(run)} is no run folder: it has no {ENVIRONMENT}")
        for session in env["sessions"]:
            kinds.setdefault(machine_kind(session), []).append(str(shard.path(run)))
        offset = len(sessions)
        sessions += env["sessions"]
        rows = read_requests(shard.path(run) / ROWS)
        requests += [row.moved(offset) for row in rows]
    if len(kinds) > 1:
        raise RunFolderError(_explain(kinds))
    order = {prompt_id: place for place, prompt_id in enumerate(prompt_ids)}
    requests.sort(key=lambda row: (row.repeat, order[row.prompt_id], row.order))
    return Gathered(requests=requests, sessions=sessions)


def is_finished(run: Path) -> bool:
    """Whether a run, or a shard, is done."""
    return (read_json(run / STATUS) or {}).get("state") == "done"


def whole_run(path: Path) -> Path | None:
    """The run that a result belongs to; None for a shard of a run that is not put together."""
    if path.parent.name != FOLDER:
        return path
    whole = path.parent.parent
    return whole if is_finished(whole) else None


def note_shards(run: Path, num_shards: int) -> None:
    """Says in a run's folder that its rows are in shards, unless somebody has said more.

    Raises:
        RunFolderError: If it cannot be written.
    """
    status = run / STATUS
    if read_json(status) is not None:
        return
    with explain_os_errors(run):
        run.mkdir(parents=True, exist_ok=True)
        # Who holds the folder for longer is about to say as much, or more.
        with suppress(Timeout), FileLock(run / LOCK, timeout=PATIENCE_S):
            if read_json(status) is None:
                write_json(status, {"state": "sharded", "num_shards": num_shards})


def _explain(kinds: Mapping[str, Sequence[str]]) -> str:
    """What differs between the machines, and which folders are whose."""
    words = {kind: kind.split(", ") for kind in kinds}
    shared = set.intersection(*map(set, words.values()))
    lines = [
        f"  {', '.join(word for word in words[kind] if word not in shared) or kind}: "
        + ", ".join(dict.fromkeys(folders))
        for kind, folders in kinds.items()
    ]
    return "\n".join(
        [
            "shards were measured on different machines and are not pooled: remove the folders of "
            "one kind, and measure those shards again on a machine of the other",
            *lines,
        ]
    )
