"""SLURM jobs of a sweep: one that dies stops none of the others, and is reported.

Hydra's submitit launcher submits and runs the jobs; only the waiting is different. That launcher
asks `sacct`, waits for ever where there is none, and gives up all cells at the first lost job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from benchmarks.outcomes import CellOutcome, label_of, note_jobs, note_outcome, read_outcome
from benchmarks.sweeps import queued_jobs

POLL_S = 2.0
GRACE_S = 10.0
"""How long a result may take to appear after its job has left the queue (shared file systems)."""
logger = logging.getLogger("benchmarks.slurm")


class ReportingSlurmLauncher(Launcher):
    """Submits a job array and waits for it with `squeue`.

    Attributes:
        params: What `configs/hydra/launcher/slurm.yaml` says.
    """

    def __init__(self, **params: Any) -> None:
        self.params = params

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """What Hydra hands over before the launch.

        Raises:
            ImportError: If the extra `slurm` is not installed.
        """
        # Not at the top: Hydra imports this file in every run, and submitit is an extra.
        from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher

        self._config = config
        # The jobs load the installed plugin, not this file, which lies on run.py's path only.
        self._worker = SlurmLauncher(**self.params)
        self._worker.setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """One result per cell, in order; the outcome of a lost job is written here."""
        jobs = self._submit(job_overrides, initial_job_idx)
        array = jobs[0].job_id.split("_")[0]
        logger.info("%d SLURM jobs %s, logs in %s", len(jobs), array, jobs[0].paths.folder.parent)
        sweep_dir = Path(str(self._config.hydra.sweep.dir))
        note_jobs(sweep_dir, {n: job.job_id for n, job in enumerate(jobs, start=initial_job_idx)})
        _wait(jobs)
        for number, (job, words) in enumerate(
            zip(jobs, job_overrides, strict=True), start=initial_job_idx
        ):
            folder = sweep_dir / str(number)
            if (error := _error(job)) is not None and read_outcome(folder) is None:
                label = label_of([word for word in words if not word.startswith("hydra")])
                note_outcome(folder, CellOutcome(label=label, code=1, message=error))
        return [JobReturn(status=JobStatus.COMPLETED) for _ in jobs]

    def _submit(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[Any]:
        import submitit
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

        own = dict(self._worker.params)
        executor = submitit.AutoExecutor(
            folder=own.pop("submitit_folder"),
            cluster="slurm",
            slurm_max_num_timeout=own.pop("max_num_timeout"),
        )
        shared = set(OmegaConf.structured(BaseQueueConf).keys())
        executor.update_parameters(
            **{name if name in shared else f"slurm_{name}": x for name, x in own.items()}
        )
        numbers = range(first, first + len(job_overrides))
        cells = [
            (list(words), "hydra.sweep.dir", number, f"job_id_for_{number}", Singleton.get_state())
            for number, words in zip(numbers, job_overrides, strict=True)
        ]
        return list(executor.map_array(self._worker, *zip(*cells, strict=True)))


def _wait(jobs: Sequence[Any]) -> None:
    """Until each job has a result or has left the queue without one."""
    gone_since: dict[str, float] = {}
    while True:
        waiting = [job for job in jobs if not job.paths.result_pickle.exists()]
        queued = queued_jobs()
        now = time.monotonic()
        for job in waiting:
            if queued is None or job.job_id in queued:
                gone_since.pop(job.job_id, None)
            else:
                gone_since.setdefault(job.job_id, now)
        if all(now - gone_since.get(job.job_id, now) > GRACE_S for job in waiting):
            return
        time.sleep(POLL_S)


def _error(job: Any) -> str | None:
    """Why a job has no outcome of its own; None if it has one."""
    from submitit.core.utils import pickle_load

    paths = job.paths
    if not paths.result_pickle.exists():
        if not paths.stderr.exists():
            return f"job {job.job_id} left the queue before it started (scancel?), it has no log"
        log = paths.stderr.read_text(errors="replace")
        said = [line for line in log.splitlines() if "***" in line]
        reason = f" ({said[-1].strip()})" if said else ""
        return f"job {job.job_id} ended without a result{reason}, see {paths.stderr}"
    kind, result = pickle_load(paths.result_pickle)
    if kind == "error":
        return f"job {job.job_id}: {result.strip().splitlines()[-1]}, see {paths.stderr}"
    if result.status == JobStatus.FAILED:
        error = result._return_value
        return f"job {job.job_id}: {type(error).__name__}: {error}, see {paths.stderr}"
    return None
