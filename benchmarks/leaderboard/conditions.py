"""What two runs must have in common to be ranked in one table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.results import StoredRun

Facts = tuple[tuple[str, str], ...]
"""Names and values, those without a value left out."""

_SHOWN_OF_MODEL = ("dtype", "linear_kernels", "quantization")
_NOT_OF_THE_OUTPUT = ("name", "name_or_path", "device", "device_map", "node_budget", "kind")
"""Options of the model that say where it lies or what a tree may hold; its content is hashed."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions of a run. Runs with equal ones, and no others, share a table.

    The node budget is none of them: it belongs to the method.

    Attributes:
        model: Name of the target model.
        dataset: Name of the dataset.
        device: The hardware.
        environment: Versions of what computes.
        settings: Number format, budget, sampling law, prompts, code.
        details: What is shown only where it sets tables apart: hashes of the model, its prompts.
    """

    model: str
    dataset: str
    device: Facts
    environment: Facts
    settings: Facts
    details: Facts

    @property
    def shown(self) -> tuple[Facts, Facts, Facts]:
        """What stands above the tables; several models may share it."""
        return self.device, self.environment, self.settings


def conditions_of(run: StoredRun) -> Conditions:
    """The conditions of one run."""
    facts, session = run.facts, _last_session(run)
    own_device = (("name", str(facts.get("device") or "not stated")),)  # In words, if imported.
    return Conditions(
        model=str(facts["model"]),
        dataset=str(facts["dataset"]),
        device=own_device if run.is_imported else _device(facts, session),
        environment=_environment(run, session),
        settings=_settings(run),
        details=_details(run),
    )


def details_that_differ(all_conditions: Iterable[Conditions]) -> dict[Conditions, Facts]:
    """Of each, the details that are not the same in all conditions that look alike otherwise."""
    alike: dict[tuple[Any, ...], list[Conditions]] = {}
    for conditions in all_conditions:
        alike.setdefault((conditions.model, conditions.shown), []).append(conditions)
    differing: dict[Conditions, Facts] = {}
    for group in alike.values():
        shared = set.intersection(*(set(conditions.details) for conditions in group))
        for conditions in group:
            differing[conditions] = tuple(x for x in conditions.details if x not in shared)
    return differing


def _last_session(run: StoredRun) -> Mapping[str, Any]:
    sessions = run.env.get("sessions") or [{}]
    session: Mapping[str, Any] = sessions[-1]
    return session


def _device(facts: Mapping[str, Any], session: Mapping[str, Any]) -> Facts:
    places = str(facts.get("device") or "not stated").split("+")
    is_cpu = places[0] == "cpu"
    return _facts(
        {
            "name": session.get("device_name") or places[0],
            # Which of several equal GPUs was used does not matter, how many does.
            "kind": places[0].partition(":")[0],
            "number": len(places) if len(places) > 1 else None,
            "threads": session.get("num_threads") if is_cpu else None,
        }
    )


def _environment(run: StoredRun, session: Mapping[str, Any]) -> Facts:
    if run.is_imported:
        return (("measured by", "others"),)
    versions = {k: v for k, v in session.get("versions", {}).items() if k != "sd-primitives"}
    own = {"python": session.get("python"), "cuda": session.get("cuda")}
    precision = {"float32 matmul": session.get("float32_matmul_precision")}
    return _facts({**versions, **own, **precision})


def _settings(run: StoredRun) -> Facts:
    facts, config, hashes = run.facts, run.config, run.env.get("hashes") or {}
    model = hashes.get("model") or {}
    return _facts(
        {
            **{name: facts.get(name) or model.get(name) for name in _SHOWN_OF_MODEL},
            "batch": 1,
            "max_new_tokens": facts.get("max_new_tokens"),
            **_law(facts, config),
            "warm-up prompts": config.get("warmup"),
            "repeats": facts.get("repeats"),
            "dataset": _join("/", facts["dataset"], facts.get("split")),
            "prompts": facts.get("num_prompts"),
            "content": hashes.get("dataset"),
            "history": facts.get("history"),
            "state": facts.get("state"),
            "profile": config.get("profile") or None,
            "code version": run.env.get("code_version"),
            "baseline": _baseline(run),
        }
    )


def _law(facts: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling law; what greedy decoding ignores is left out."""
    temperature = config.get("temperature", facts.get("temperature"))
    if temperature is None and facts.get("is_greedy"):
        temperature = 0.0
    law: dict[str, Any] = {"temperature": temperature}
    if not facts.get("is_greedy"):
        law |= {name: config.get(name) for name in ("top_k", "top_p")}
    return law


def _baseline(run: StoredRun) -> str | None:
    """The vanilla run that an imported run was divided by: another one gives other speedups."""
    imported = run.env.get("imported") or {}
    sha = imported.get("baseline_sha256")
    return _join(" ", imported.get("baseline"), sha and f"(sha256 {str(sha)[:12]})")


def _details(run: StoredRun) -> Facts:
    hashes = (run.env.get("hashes") or {}).get("model") or {}
    options = run.config.get("model") or {}
    values = {name: hashes[name] for name in hashes if name not in _SHOWN_OF_MODEL}
    values |= {
        f"model.{name}": options[name]
        for name in options
        if name not in (*_NOT_OF_THE_OUTPUT, *_SHOWN_OF_MODEL)
    }
    return _facts(values)


def _facts(values: Mapping[str, Any]) -> Facts:
    return tuple((name, _text(value)) for name, value in values.items() if value is not None)


def _text(value: Any) -> str:
    is_nested = isinstance(value, Mapping | list | tuple)
    return json.dumps(value, sort_keys=True) if is_nested else str(value)


def _join(mark: str, *words: Any) -> str | None:
    return mark.join(str(word) for word in words if word) or None
