"""Plain configuration -> models and methods.

Impossible combinations of primitives are refused here, by the tags that they declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from methods.decoding import Method
from methods.sampling import SamplingLaw
from methods.targets.loading import HuggingFaceConfig, LoadedModel, ToyConfig
from methods.targets.vocabulary import num_other_tokens
from primitives.fields import typed_fields
from primitives.interfaces import Retriever, Verifier
from primitives.registry import RETRIEVERS, TREE_BUILDERS, VERIFIERS, Registry
from primitives.structures.draft_text import DraftingModel

MODEL_KINDS: dict[str, type[ToyConfig] | type[HuggingFaceConfig]] = {
    "toy": ToyConfig,
    "huggingface": HuggingFaceConfig,
}


NO_DRAFT_MODEL = {"kind": None}


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
    _check_draft_model(retriever, config.get("draft_model") or NO_DRAFT_MODEL)
    if retriever is not None:
        _check_proposal(retriever, verifier)
        _check_datastore(retriever, config["datastore"]["kind"])
        if config["method"]["node_budget"] == 0:
            raise ConfigError(
                f"retriever={retriever.name} needs room for drafts, but method.node_budget=0, as "
                "vanilla has: set method.node_budget, or take another method"
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


def build_model(config: Mapping[str, Any], group: str = "model") -> LoadedModel:
    """Loads the model that a configuration describes.

    Args:
        config: Of the model.
        group: The configuration group that it is from, for messages.

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
            f"{group}.kind must be one of {sorted(MODEL_KINDS)}, got {config['kind']!r}"
        )
    if fields.get("name_or_path", "") is None:
        raise ConfigError(f"{group}=hf needs {group}.name_or_path=HUB_NAME_OR_FOLDER")
    return kind(**typed_fields(kind, fields, group)).load()


def check_draft_model(draft: LoadedModel, target: LoadedModel) -> None:
    """Whether a model can draft for another one.

    Raises:
        ConfigError: If their ids mean different tokens, or the draft model is split over processes.
    """
    if not isinstance(draft.target, DraftingModel):
        raise ConfigError(
            f"draft_model={draft.name} cannot draft: {type(draft.target).__name__} has no trees "
            "that grow (draft_model.tp_plan must be null)"
        )
    if num_other := num_other_tokens(draft.codec, target.codec):
        raise ConfigError(
            f"draft_model={draft.name} must have the tokens of model={target.name} under the same "
            f"ids, but {num_other} of {target.target.vocab_size} differ: take a draft model with "
            "the same tokenizer"
        )
    if draft.target.vocab_size < target.target.vocab_size:
        raise ConfigError(
            f"draft_model={draft.name} must know all tokens of model={target.name} "
            f"({target.target.vocab_size}), it has {draft.target.vocab_size}"
        )


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


def _check_draft_model(retriever: Retriever | None, config: Mapping[str, Any]) -> None:
    has_model, name = config["kind"] is not None, retriever.name if retriever else "none"
    is_needed = retriever is not None and retriever.needs_draft_model
    if is_needed and not has_model:
        raise ConfigError(
            f"retriever={name} drafts with a model of its own, but there is none: add "
            "draft_model=NAME (a model with the target's tokenizer, see configs/draft_model)"
        )
    if has_model and not is_needed:
        label = config.get("name") or config.get("name_or_path") or config["kind"]
        raise ConfigError(
            f"retriever={name} drafts without a model, draft_model={label} would be loaded for "
            "nothing: take draft_model=none, or retriever=draft_model"
        )


def _check_proposal(retriever: Retriever, verifier: Verifier) -> None:
    if retriever.proposal not in verifier.valid_proposals:
        raise ConfigError(
            f"retriever={retriever.name} proposes {retriever.proposal} drafts, but "
            f"verifier={verifier.name} takes {', '.join(sorted(verifier.valid_proposals))} only"
        )
