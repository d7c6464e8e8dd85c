"""Checks that every retriever, tree builder and verifier passes."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
import re
import sys
import types
import typing
from contextlib import contextmanager
from typing import Any, Literal

import jaxtyping
import numpy as np
import pytest
import yaml

from configs import CONFIG_DIR
from contract.components import kind_of, make, only_if
from contract.expected_failures import ACCEPTED_VALUES, FIELD_VALUES, INERT_FIELDS
from methods.sampling import SamplingLaw
from methods.targets.toy import ToyTarget
from primitives.interfaces import Retriever, TreeBuilder
from primitives.random_source import TorchRandom
from primitives.types import Candidate, Context, DraftTree, StepOutcome
from support import scenes
from support.toy import GREEDY, generate, make_method

MAX_LINES = 250
HUGE = 10**9
FORBIDDEN_MODULES = {
    "transformers", "hydra", "omegaconf", "wandb", "time", "datetime", "logging", "warnings",
    "random", "os", "io", "pathlib", "tempfile", "subprocess",
}  # fmt: skip
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval"}


def answers(component: Any, seeds: typing.Iterable[int] = range(4)) -> list[Any]:
    """What a component says to a bank of questions that depends on nothing but the seeds."""
    return [answer for seed in seeds for answer in _answer(component, seed)]


def _answer(component: Any, seed: int) -> list[Any]:
    if isinstance(component, Retriever):
        scene = scenes.record_scene(seed, component.needs)
        return scenes.play(component, scene, limit=(4, 1, 2)[seed % 3])
    if isinstance(component, TreeBuilder):
        return [
            scenes.describe_tree(component.build(pending_id, candidates, budget))
            for is_sampled in (False, True)
            for pending_id, candidates in scenes.candidate_sets(seed, is_sampled=is_sampled)
            for budget in (1, 6)
        ]
    random = TorchRandom.from_seed(seed)
    return [
        (
            scenes.judge(component, scored.tree, scored.last_logits, scored.logits, random),
            component.choose(scored.last_logits, random),
            component.admit(scored.last_logits, scored.last_logits.argsort()).tolist(),
        )
        for scored in scenes.scored_trees(seed, vocab_size=32)
    ]


def check_default_construction(cls: type[Any]) -> None:
    assert isinstance(make(cls), cls)


def check_yaml_equals_defaults(cls: type[Any]) -> None:
    path = CONFIG_DIR / kind_of(cls) / f"{cls.name}.yaml"
    assert path.is_file(), f"{cls.name} has no {path.relative_to(CONFIG_DIR.parent)}"
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert loaded == {"name": cls.name, **_fields(make(cls))}


def check_state_is_private(cls: type[Any]) -> None:
    component = make(cls)
    for field in dataclasses.fields(cls):
        if not field.init:
            assert field.name.startswith("_"), f"{field.name} is state: name it _{field.name}"
            assert not field.repr, f"{field.name} is state: repr=False"
            assert not field.compare, f"{field.name} is state: compare=False"
    if not issubclass(cls, Retriever):
        assert cls.__dataclass_params__.frozen, f"{cls.__name__} must be a frozen dataclass"
    answers(component)
    # Tags may depend on the fields.
    declared = {field.name for field in dataclasses.fields(cls)} | set(Retriever.__annotations__)
    undeclared = set(vars(component)) - declared
    assert not undeclared, f"attributes that are no fields: {undeclared}"


def check_fields_survive_use(cls: type[Any]) -> None:
    component = make(cls)
    before, text = copy.deepcopy(_fields(component)), repr(component)
    answers(component)
    _generate_with(component)
    assert _fields(component) == before
    assert repr(component) == text


def check_repr_round_trips(cls: type[Any]) -> None:
    component = make(cls)
    again = eval(repr(component), {cls.__name__: cls, **vars(sys.modules[cls.__module__])})
    assert _fields(again) == _fields(component)


def check_copies_answer_alike(cls: type[Any]) -> None:
    component = make(cls)
    answers(component, [0, 1])  # Copies are taken from a component in use.
    copies = [copy.deepcopy(component), pickle.loads(pickle.dumps(component))]
    expected = answers(component)
    for other in copies:
        assert answers(other) == expected


def check_same_questions_same_answers(cls: type[Any]) -> None:
    assert answers(make(cls)) == answers(make(cls))


def check_inputs_are_not_mutated(cls: type[Any]) -> None:
    component = make(cls)
    calls: list[tuple[Any, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("begin", "propose", "observe", "build", "verify", "choose", "admit"):
            if hasattr(cls, name):
                patch.setattr(cls, name, _spy(getattr(cls, name), calls))
        answers(component, [0, 1])
    assert calls
    assert all(before == after for before, after in calls)


def check_each_field_matters(cls: type[Any]) -> None:
    default, inert = make(cls), INERT_FIELDS.get(cls.name, {})
    seeds = range(12 if isinstance(default, Retriever) else 6)
    expected = [_answer(default, seed) for seed in seeds]
    for field in config_fields(cls):
        moved = [make(cls, **fields) for fields in _moves(cls, default, field)]
        assert moved, f"no other value of {field.name} to try: add some to FIELD_VALUES"
        is_inert = all(
            _answer(component, seed) == answer
            for component in moved
            for seed, answer in zip(seeds, expected, strict=True)
        )
        assert is_inert == (field.name in inert), (
            f"{field.name} changes no answer" if is_inert else f"{field.name} is not inert"
        )


def check_bad_values_are_refused(cls: type[Any]) -> None:
    hints = typing.get_type_hints(cls)
    for field in config_fields(cls):
        if field.name in ACCEPTED_VALUES.get(cls.name, {}):
            continue
        for value in _bad_values(hints[field.name]):
            with (
                _unchecked_types(),
                pytest.raises(ValueError, match=re.escape(field.name)) as error,
            ):
                make(cls, **{field.name: value})
            assert str(value) in str(error.value), f"{field.name}: the error omits {value!r}"


def check_huge_values_are_refused_or_harmless(cls: type[Any]) -> None:
    """A slip of the keyboard must not use up the machine."""
    hints = typing.get_type_hints(cls)
    for field in config_fields(cls):
        hint = hints[field.name]
        if int not in (hint, *typing.get_args(hint)):
            continue
        message = ""
        try:
            answers(make(cls, **{field.name: HUGE}), [0, 1])
        except ValueError as error:
            message = str(error)
        assert not message or (field.name in message and str(HUGE) in message)


def check_fields_are_documented(cls: type[Any]) -> None:
    lines = [line.strip() for line in inspect.getdoc(cls).splitlines()]
    for field in config_fields(cls):
        assert any(line.startswith(f"{field.name}: ") for line in lines), (
            f"{field.name} is missing under Attributes"
        )


def check_module_names_source_and_cost(cls: type[Any]) -> None:
    text = inspect.getdoc(sys.modules[cls.__module__]) or ""
    assert "Source:" in text, "the module docstring names no `Source:` (paper, section, equation)"
    assert "Cost:" in text


def check_file_is_short(cls: type[Any]) -> None:
    num_lines = len(inspect.getsource(sys.modules[cls.__module__]).splitlines())
    assert num_lines <= MAX_LINES, "move the data structure to primitives/structures"


def check_touches_no_outside_world(cls: type[Any]) -> None:
    tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        for name in names:
            assert name.split(".")[0] not in FORBIDDEN_MODULES, f"line {node.lineno}: {name}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}: {node.func.id}()"


@only_if(lambda cls: issubclass(cls, TreeBuilder) or not getattr(cls, "samples", False))
def check_works_in_the_loop_without_randomness(cls: type[Any]) -> None:
    assert _generate_with(make(cls)).output_ids


def _generate_with(component: Any) -> Any:
    """A generation in which the component takes part."""
    verifier = None if isinstance(component, Retriever | TreeBuilder) else component
    method = make_method(
        component if isinstance(component, Retriever) else None,
        component if isinstance(component, TreeBuilder) else None,
        verifier,
    )
    law = SamplingLaw(temperature=1.0) if getattr(verifier, "samples", False) else GREEDY
    random = TorchRandom.from_seed(0) if verifier else None
    return generate(method, [1, 2, 3, 1, 2], target=ToyTarget(vocab_size=8), law=law, random=random)


def config_fields(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(cls) if field.init]


def _fields(component: Any) -> dict[str, Any]:
    return {field.name: getattr(component, field.name) for field in config_fields(type(component))}


def _moves(cls: type[Any], default: Any, field: dataclasses.Field[Any]) -> list[dict[str, Any]]:
    """Valid field settings that differ from the defaults in one field."""
    value = getattr(default, field.name)
    values = FIELD_VALUES.get(cls.name, {}).get(field.name)
    if values is None:
        values = _other_values(typing.get_type_hints(cls)[field.name], value)
    valid = []
    for other in values:
        try:
            make(cls, **{field.name: other})
        except ValueError:
            continue
        valid.append({field.name: other})
    return valid


def _other_values(hint: Any, value: Any) -> list[Any]:
    if typing.get_origin(hint) is Literal:
        return [other for other in typing.get_args(hint) if other != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value - 1, value + 1, value // 2, value * 2]
    if isinstance(value, float):
        return [value / 2, value * 2, value - 0.25, value + 0.25]
    return []


def _bad_values(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is Literal:
        return ["nonsense"]
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if float in options:
        return [float("nan")]
    return [-1] if int in options else []


@contextmanager
def _unchecked_types() -> typing.Iterator[None]:
    """What users get: in production no type checker stands before a component's own checks."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def _spy(method: Any, calls: list[tuple[Any, Any]]) -> Any:
    def spied(self: Any, *args: Any, **options: Any) -> Any:
        before = _snapshot([*args, *options.values()])
        result = method(self, *args, **options)
        calls.append((before, _snapshot([*args, *options.values()])))
        return result

    return spied


def _snapshot(value: Any) -> Any:
    """The content of an input, down to its arrays and tensors, at this moment."""
    if isinstance(value, Context | Candidate | DraftTree | StepOutcome):
        return [_snapshot(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, list | tuple):
        return [_snapshot(item) for item in value]
    if isinstance(value, np.ndarray) or hasattr(value, "tolist"):
        return value.tolist()
    return None if isinstance(value, TorchRandom) else value
