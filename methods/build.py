"""Plain configuration -> objects: the only reader of the registries.

Impossible combinations of primitives are refused here, by the tags that they declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from methods.decoding import Method
from methods.sampling import SamplingLaw
from methods.targets.loading import HuggingFaceConfig, LoadedModel, ToyConfig
from primitives.fields import typed_fields
from primitives.interfaces import Retriever, Verifier
from primitives.registry import RETRIEVERS, TREE_BUILDERS, VERIFIERS, Registry

MODEL_KINDS: dict[str, type[ToyConfig] | type[HuggingFaceConfig]] = {
    "toy": ToyConfig,
    "huggingface": HuggingFaceConfig,
}


class ConfigError(ValueError):
    """A configuration that cannot be built; the message says why."""


def build_law(config: Mapping[str, Any]) -> SamplingLaw:
    """The sampling law of a run."""
    values = {name: config[name] for name in ("temperature", "top_k", "top_p")}
    return SamplingLaw(**typed_fields(SamplingLaw, values, "the configuration"))


def build_method(config: Mapping[str, Any], law: SamplingLaw) -> Method:
    """The three primitives that a configuration names, and its budgets.

    Raises:
        RegistryError: If a name does not exist.
        FieldError: If a field does not exist or has the wrong type.
        ConfigError: If the primitives do not go together.
        ValueError: If a component refuses a value.
    """
    settings = typed_fields(Method, config["method"], "method")
    retriever = None
    if config["retriever"]["name"] is not None:
        retriever = _create(RETRIEVERS, config["retriever"])
    verifier = _create(VERIFIERS, config["verifier"])
    _check_law(verifier, law)
    if retriever is not None:
        _check_proposal(retriever, verifier)
        _check_datastore(retriever, config["datastore"]["kind"])
        if config["method"]["node_budget"] == 0:
            raise ConfigError(
                f"retriever={retriever.name} needs room for drafts, but method.node_budget=0: "
                "set method.node_budget, or take another method than vanilla"
            )
    return Method(
        **settings,
        retriever=retriever,
        tree_builder=_create(TREE_BUILDERS, config["tree_builder"]),
        verifier=verifier,
    )


def build_vanilla(law: SamplingLaw) -> Method:
    """The baseline: the same loop with no retriever, under the same law."""
    return Method(
        name="vanilla",
        retriever=None,
        tree_builder=TREE_BUILDERS.create("chain"),
        verifier=VERIFIERS.create("greedy" if law.is_greedy else "sampling"),
        node_budget=0,
        max_candidates=1,
    )


def build_model(config: Mapping[str, Any]) -> LoadedModel:
    """Loads the model that a configuration describes.

    Raises:
        ConfigError: If the kind does not exist, or no model is named.
        FieldError: If a field does not exist or has the wrong type.
        ModelUnavailable: If it cannot be had as asked.
        UnsupportedModel: If it cannot serve as a target model.
    """
    fields = {key: value for key, value in config.items() if key not in ("kind", "node_budget")}
    kind = MODEL_KINDS.get(config["kind"])
    if kind is None:
        raise ConfigError(
            f"model.kind must be one of {sorted(MODEL_KINDS)}, got {config['kind']!r}"
        )
    if fields.get("name_or_path", "") is None:
        raise ConfigError("model=hf needs model.name_or_path=HUB_NAME_OR_FOLDER")
    return kind(**typed_fields(kind, fields, "model")).load()


def _create(registry: Registry[Any], config: Mapping[str, Any]) -> Any:
    fields = {key: value for key, value in config.items() if key != "name"}
    return registry.create(config["name"], **fields)


def _check_law(verifier: Verifier, law: SamplingLaw) -> None:
    if verifier.samples and law.is_greedy:
        raise ConfigError(
            f"verifier={verifier.name} draws from the target's law, but temperature=0 is greedy "
            "decoding: set temperature above 0, or use verifier=greedy"
        )
    if not verifier.samples and not law.is_greedy:
        raise ConfigError(
            f"temperature={law.temperature} asks for sampling, but verifier={verifier.name} takes "
            "the most probable token: use verifier=sampling, or temperature=0"
        )


def _check_datastore(retriever: Retriever, kind: str | None) -> None:
    wanted = retriever.wanted_datastore
    if wanted is not None and kind != wanted:
        there_is = "there is none" if kind is None else f"this one holds {kind}"
        raise ConfigError(
            f"retriever={retriever.name} searches a datastore of {wanted}, but {there_is}: "
            f"add datastore={wanted}"
        )


def _check_proposal(retriever: Retriever, verifier: Verifier) -> None:
    if retriever.proposal not in verifier.valid_proposals:
        raise ConfigError(
            f"retriever={retriever.name} proposes {retriever.proposal} drafts, but "
            f"verifier={verifier.name} takes {', '.join(sorted(verifier.valid_proposals))} only"
        )
