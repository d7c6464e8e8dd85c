"""The registry's errors teach: they name the kind, near matches, the full list and both origins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from primitives.fields import FieldError
from primitives.interfaces import Retriever, TreeBuilder
from primitives.registry import RETRIEVERS, Registry, RegistryError
from primitives.types import Candidate, Context, DraftTree


class Silent(Retriever):
    """Base of the classes registered in here."""

    def propose(self, context: Context, limit: int) -> list[Candidate]:
        return []


@pytest.fixture
def registry() -> Registry[Retriever]:
    """An empty registry over a package without components."""
    return Registry("retriever", Retriever, "primitives.structures")


def test_registered_class_gets_its_name(registry: Registry[Retriever]) -> None:
    @registry.register("quiet")
    @dataclass(kw_only=True)
    class Quiet(Silent):
        depth: int = 3

    assert Quiet.name == "quiet"
    assert registry.names() == ["quiet"]
    assert registry.get("quiet") is Quiet
    assert registry.create("quiet", depth=5) == Quiet(depth=5)


def test_unknown_name_is_answered_with_near_matches_and_the_list() -> None:
    with pytest.raises(RegistryError) as error:
        RETRIEVERS.get("promt_lookup")
    assert "unknown retriever 'promt_lookup', did you mean 'prompt_lookup'" in str(error.value)
    assert f"There is: {', '.join(RETRIEVERS.names())}" in str(error.value)


def test_name_like_no_other_gets_the_list_alone() -> None:
    with pytest.raises(RegistryError, match=r"unknown retriever 'zzz'\. There is: ") as error:
        RETRIEVERS.get("zzz")
    assert "did you mean" not in str(error.value)


def test_unknown_field_is_answered_with_near_matches_and_the_list() -> None:
    with pytest.raises(FieldError) as error:
        RETRIEVERS.create("prompt_lookup", max_ngrams=4)
    assert "retriever 'prompt_lookup' has no field 'max_ngrams'" in str(error.value)
    assert "did you mean 'max_ngram'" in str(error.value)
    assert "It has: max_ngram, min_ngram, num_tokens" in str(error.value)


def test_state_is_no_field(registry: Registry[Retriever]) -> None:
    @registry.register("stateful")
    @dataclass(kw_only=True)
    class Stateful(Silent):
        _seen: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    with pytest.raises(FieldError, match=r"has no field '_seen'\. It has: no fields"):
        registry.create("stateful", _seen=[1])


def test_duplicate_names_show_both_origins(registry: Registry[Retriever]) -> None:
    @registry.register("twice")
    @dataclass(kw_only=True)
    class First(Silent):
        pass

    @dataclass(kw_only=True)
    class Second(Silent):
        pass

    with pytest.raises(RegistryError, match="'twice' is registered twice") as error:
        registry.register("twice")(Second)
    assert str(error.value).count(__file__) == 2
    assert re.search(r"First\) and .*Second\)", str(error.value))


def test_wrong_base_is_refused(registry: Registry[Retriever]) -> None:
    @dataclass(kw_only=True)
    class Builder(TreeBuilder):
        def build(self, pending_id: int, candidates: Sequence[Candidate], budget: int) -> DraftTree:
            return DraftTree.root_only(pending_id)

    with pytest.raises(RegistryError, match="'x' must derive from Retriever, Builder does not"):
        registry.register("x")(Builder)
    assert registry.names() == []


def test_positional_field_is_refused(registry: Registry[Retriever]) -> None:
    @dataclass
    class Positional(Silent):
        depth: int = 3

    with pytest.raises(RegistryError, match="'x' must be a keyword-only dataclass"):
        registry.register("x")(Positional)


def test_plain_class_is_refused(registry: Registry[Retriever]) -> None:
    class Plain(Silent):
        pass

    with pytest.raises(RegistryError, match="'x' must be a dataclass: its fields are its config"):
        registry.register("x")(Plain)
