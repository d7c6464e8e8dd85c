"""What a run rests on, as far as it is known without its model: how a finished run is found again.

The run id needs facts that only a loaded model and an opened datastore give. The inputs need none:
the configuration, the contents of the datasets, the code, and of the model's and the datastore's
files the sizes and times. A run notes them in its `status.json`. Equal ones mean an equal run; if
they differ, or cannot be known, nothing is claimed, and the model is loaded as for a new run.

Cost: a walk over the model's and the datastore's folders; for a model on the hub one request, the
same with which loading it would begin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.datasets import Dataset, DatasetError, hash_prompts, limit_prompts, loader_of
from benchmarks.datasets.base import Prompt
from benchmarks.datastore_config import STORED_ELSEWHERE
from benchmarks.files import RunFolderError, read_json
from benchmarks.provenance import IGNORED_CONFIG, code_version, without_keys
from benchmarks.run_files import STATUS, run_folders
from methods.cache import cache_root
from methods.targets.facts import hub_commit
from methods.targets.loading import EMBEDDED
from methods.targets.smollm2 import FOLDER_NAME

MODELS = ("model", "draft_model")
"""Groups of the configuration that name a model; a run need not have the second."""
ADAPTER = "adapter_config.json"
"""Beside weights that belong to others, which lie elsewhere."""

Files = dict[str, list[int]]
"""Per file its size in bytes and the times of its last change, in ns: of content and of inode. The
latter also moves when a file is replaced by one with an older time."""


def inputs_digest(
    config: Mapping[str, Any],
    dataset: Dataset,
    warm_prompts: tuple[Prompt, ...],
    wanted: str | None,
) -> str | None:
    """What identifies a run before its model is loaded; its datastore's files are added later.

    Args:
        config: The resolved configuration, with the method's label.
        dataset: The prompts.
        warm_prompts: What a warm retriever has seen.
        wanted: Kind of the datastore that is searched; None without one.

    Returns:
        A SHA-256 in hexadecimal digits; None if the files of a model, or what a datastore would be
        made from, cannot be known for sure.
    """
    models = [_model_inputs(config[group]) for group in MODELS if _is_chosen(config, group)]
    datastore = {} if wanted is None else _datastore_inputs(config)
    if None in models or datastore is None:
        return None
    value = {
        "config": without_keys(config, IGNORED_CONFIG),
        "dataset": dataset.content_hash,
        "warm": hash_prompts(warm_prompts),
        "code": code_version(),
        "has_cuda": torch.cuda.is_available(),  # What device=auto depends on.
        "models": models,
        "head": _file_digest(config["verifier"].get("head")),
        "datastore": datastore,
    }
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def noted_inputs(digest: str | None, stores: list[Path]) -> dict[str, Any]:
    """What a run writes down: the digest, and the files of the datastores that it opened."""
    if digest is None:
        return {}
    places = [store.resolve() for store in stores]
    return {"digest": digest, "stores": {str(place): folder_files(place) for place in places}}


def find_ended(
    results_dir: Path, *, dataset: str, method: str, digest: str, is_stopped_enough: bool
) -> Path | None:
    """The folder of a finished run with these inputs, whose datastores are as they were then.

    Args:
        results_dir: Where run folders are.
        dataset: Its name.
        method: Its label.
        digest: Of `inputs_digest`.
        is_stopped_enough: Whether a run that was stopped early will do.
    """
    states = ("done", "stopped") if is_stopped_enough else ("done",)
    for folder in run_folders(results_dir, dataset=dataset, method=method):
        status: Mapping[str, Any] = {}
        with suppress(RunFolderError):  # A damaged folder is no match; whoever wants it is told.
            status = read_json(folder / STATUS) or {}
        noted = status.get("inputs") or {}
        if status.get("state") not in states or noted.get("digest") != digest:
            continue
        if all(folder_files(Path(place)) == files for place, files in noted["stores"].items()):
            return folder
    return None


def folder_files(folder: Path) -> Files:
    """All files in and below a folder, by their relative paths; none if there is no folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _stat(path) for path in paths}


def _stat(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _file_digest(name: str | None) -> str | None:
    """Of a file's content; None without a file."""
    path = Path(name).expanduser() if name else None
    return hashlib.sha256(path.read_bytes()).hexdigest() if path and path.is_file() else None


def _is_chosen(config: Mapping[str, Any], group: str) -> bool:
    return (config.get(group) or {}).get("kind") is not None


def _model_inputs(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Files of the model, or its commit on the hub; None if others may come in."""
    if config["kind"] == "toy":
        return {}  # Computed from its configuration.
    source = config.get("name_or_path")
    # Code of others, and processes that load a part each, may bring what no file here shows.
    if not source or config.get("trust_remote_code") or config.get("tp_plan"):
        return None
    folder = cache_root() / FOLDER_NAME if source == EMBEDDED else Path(source)
    template = Path(str(config.get("chat_template"))).expanduser()
    known: dict[str, Any] = {"template": _stat(template) if template.is_file() else None}
    if folder.is_dir():
        if (folder / ADAPTER).exists():
            return None
        return known | {"folder": str(folder.resolve()), "files": folder_files(folder)}
    if source == EMBEDDED:
        return None  # It will be made now.
    commit = hub_commit(str(source), config.get("revision"))
    if commit is None or _has_hub_adapter(str(source), commit):
        return None
    return known | {"commit": commit}


def _has_hub_adapter(name: str, commit: str) -> bool:
    """Whether weights of another repository are laid over the model's."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, ADAPTER, revision=commit), str)


def _datastore_inputs(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The store's folder, or all that its name in the cache is made from but the model."""
    settings = config["datastore"]
    if settings["path"] is not None:
        return {"path": str(Path(settings["path"]).expanduser().resolve())}
    loader = loader_of(config["dataset"])
    wanted = {settings["split"], "test"} & {*loader.splits}
    try:
        splits = {name: loader.load(name) for name in wanted}
    except DatasetError:  # A store that needs the split says so when it is opened.
        return None
    source = splits.get(settings["split"])
    test = splits.get("test")
    return {
        "cache": str(cache_root().resolve()),
        "settings": {k: v for k, v in settings.items() if k not in STORED_ELSEWHERE},
        "source": None if source is None else limit_prompts(source, settings["limit"]).content_hash,
        "test": None if test is None else test.content_hash,
    }
