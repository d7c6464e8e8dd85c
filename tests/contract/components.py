"""Which components and checks there are, and how to make a component with its toy resources."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contract.expected_failures import EXPECTED_FAILURES
from methods.targets.toy import ToyTarget
from primitives.interfaces import Component, DatastoreKind, Retriever, Verifier
from primitives.registry import RETRIEVERS, TREE_BUILDERS, VERIFIERS, Registry
from support.hidden_stores import toy_hidden_store
from support.ngram_stores import toy_bigrams, toy_ngram_trees
from support.token_stores import toy_documents, toy_token_store

REGISTRIES: tuple[Registry[Any], ...] = (RETRIEVERS, TREE_BUILDERS, VERIFIERS)
TOY_STORES: dict[DatastoreKind, Callable[[], Any]] = {
    "tokens": toy_token_store,
    "hidden_states": toy_hidden_store,
    "bigrams": toy_bigrams,
    "ngram_trees": toy_ngram_trees,
}
Check = Callable[[Any], None]
DRAFT_VOCAB_SIZE = 40


def make(cls: type[Any], **fields: Any) -> Any:
    """A component with its defaults, the given fields, and the toy resources that it needs."""
    component = cls(**fields)
    if isinstance(component, Retriever):
        attach_toy_resources(component)
    if isinstance(component, Verifier):
        attach_toy_verifier_resources(component)
    return component


def attach_toy_resources(retriever: Retriever) -> None:
    """Hands a retriever the small datastore, or the toy draft model, that it needs.

    The draft model knows more tokens than any target of these tests, as models with padded
    vocabularies do.
    """
    if retriever.wanted_datastore is not None:
        retriever.attach(TOY_STORES[retriever.wanted_datastore]())
    if retriever.needs_draft_model:
        retriever.attach_draft_model(ToyTarget(vocab_size=DRAFT_VOCAB_SIZE, seed=1))


def attach_toy_verifier_resources(verifier: Verifier) -> None:
    """Hands a verifier the toy's embeddings or a small head, if it needs them."""
    random = np.random.default_rng(0)
    if "embeddings" in verifier.needs:
        embeddings = random.normal(size=(DRAFT_VOCAB_SIZE, 8))
        verifier.attach(embeddings=torch.from_numpy(embeddings))
    if "head" in verifier.needs:
        verifier.attach(head=ToyHead())


class ToyHead:
    """A judge's head for hidden states of any size."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """Probability [n] that each token [n, d] will do."""
        return torch.sigmoid(hidden.sum(dim=-1))


def searched_texts(retriever: Retriever, ids: np.ndarray) -> list[np.ndarray]:
    """What an exact retriever searches: its toy datastore, or else the text so far."""
    return toy_documents() if retriever.wanted_datastore == "tokens" else [ids]


def only_if(tag: Callable[[Any], bool]) -> Callable[[Check], Check]:
    """Restricts a check to the components (or methods) for which `tag` is true."""

    def mark(check: Check) -> Check:
        check.applies = tag  # type: ignore[attr-defined]
        return check

    return mark


def checks_of(*modules: ModuleType) -> list[Check]:
    """The `check_*` functions that modules define, in the order of definition."""
    return [
        value
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("check_") and value.__module__ == module.__name__
    ]


def class_params(registry: Registry[Any], checks: Iterable[Check]) -> list[Any]:
    """Parameters (check, class), one for each registered class and check that its tags ask for."""
    classes = [(name, registry.get(name)) for name in registry.names()]
    return [param(check, name, cls) for name, cls in classes for check in applying(checks, cls)]


def applying(checks: Iterable[Check], subject: Any) -> list[Check]:
    return [check for check in checks if getattr(check, "applies", lambda _: True)(subject)]


def param(check: Check, name: str, subject: Any) -> Any:
    """One parameter, with the marks that expected failures and missing dependencies call for."""
    marks = []
    if reason := EXPECTED_FAILURES.get(name, {}).get(check.__name__):
        marks.append(pytest.mark.xfail(reason=reason, strict=True))
    if isinstance(subject, type) and (missing := missing_requirements(subject)):
        marks.append(pytest.mark.skip(reason=f"{name} needs {', '.join(missing)}"))
    return pytest.param(check, subject, id=f"{name}-{check.__name__}", marks=marks)


def missing_requirements(cls: type[Component]) -> list[str]:
    """Optional modules that a component imports and that are not installed here."""
    return [module for module in cls.requires if importlib.util.find_spec(module) is None]


def kind_of(cls: type[Component]) -> str:
    """`retriever`, `tree_builder` or `verifier`."""
    return next(registry.kind for registry in REGISTRIES if issubclass(cls, registry.base))
