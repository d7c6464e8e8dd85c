"""Where a result comes from: the run id, and a description of the code and of the machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
CODE_PACKAGES = ("primitives", "methods", "benchmarks")
CODE_SUFFIXES = (".py", ".jinja")
DISTRIBUTIONS = {
    "sd-primitives": ("sd-primitives",),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "numpy": ("numpy",),
    "faiss": ("faiss-cpu", "faiss-gpu-cu12", "faiss-gpu"),
}
IGNORED_CONFIG = (
    "results_dir", "progress", "on_error", "wandb", "wandb_project", "hydra", "dataset.path",
    "datastore", "allow_code_execution", "shard", "stop_early",
)  # fmt: skip
"""Dotted keys that say where things lie or how a run is shown, and cannot change its results; of a
datastore the content counts."""


def run_id(
    config: Mapping[str, Any],
    *,
    settings: Mapping[str, Any],
    dataset_hash: str,
    datastore_hashes: Mapping[str, str],
    code: str,
) -> str:
    """Twelve hexadecimal digits: equal for runs that must give the same results.

    Args:
        config: The resolved configuration; `IGNORED_CONFIG` is left out.
        settings: What the runner was told, in case the configuration does not hold all of it.
        dataset_hash: Content hash of the prompts.
        datastore_hashes: Content hash of each datastore, by name.
        code: `code_version()`.
    """
    value = {
        "config": without_keys(config, IGNORED_CONFIG),
        "settings": dict(settings),
        "dataset": dataset_hash,
        "datastores": dict(datastore_hashes),
        "code": code,
    }
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def without_keys(config: Mapping[str, Any], dotted_keys: tuple[str, ...]) -> dict[str, Any]:
    """A copy of nested mappings without some keys."""
    kept: dict[str, Any] = {}
    for key, value in config.items():
        if key in dotted_keys:
            continue
        if isinstance(value, Mapping):
            prefix = f"{key}."
            inner = tuple(k.removeprefix(prefix) for k in dotted_keys if k.startswith(prefix))
            value = without_keys(value, inner)
        kept[key] = value
    return kept


@cache  # A long sweep must keep the version it was started with, whatever is edited meanwhile.
def code_version(root: Path = ROOT) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the sources; needs no git."""
    digest = hashlib.sha256()
    for path in sorted(
        path
        for package in CODE_PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in CODE_SUFFIXES
    ):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def describe_environment(device: str, load_seconds: float | None) -> dict[str, Any]:
    """What the machine and its software look like now.

    Args:
        device: Where the target model lives, e.g. `cpu` or `cuda:0`.
        load_seconds: How long loading the model took, if known.
    """
    return {
        "time": timestamp(),
        "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "host": platform.node(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "num_cpus": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
        "device": device,
        "device_name": _device_name(device),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "versions": {name: _version(names) for name, names in DISTRIBUTIONS.items()},
        "git": git_state(),
        "load_seconds": load_seconds,
    }


def machine_kind(session: Mapping[str, Any]) -> str:
    """What must be equal for times of two sessions to be pooled, in words; hosts may differ."""
    device = str(session.get("device", "")).partition(":")[0]
    versions = session.get("versions") or {}
    words = [
        str(session.get("device_name") or device),
        f"{session.get('cpu')}, {session.get('num_threads')} threads",
        f"python {session.get('python')}",
        *(f"{name} {version}" for name, version in sorted(versions.items())),
    ]
    return ", ".join(words)


def timestamp() -> str:
    """Now, in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def cpu_name() -> str:
    """The processor's model name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def git_state(root: Path = ROOT) -> dict[str, Any] | None:
    """Commit and whether files differ from it; None outside a checkout of this project."""
    top = _git(root, "rev-parse", "--show-toplevel")
    # An installed copy may lie inside the repository of some other project.
    if top is None or Path(top).resolve() != root:
        return None
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "is_dirty": bool(_git(root, "status", "--porcelain"))}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True, check=True, text=True, timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(distributions: tuple[str, ...]) -> str | None:
    """The version of the first of several distributions that is installed."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _device_name(device: str) -> str:
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name() if kind == "cpu" else kind
