"""Which draft models are refused, and why, before anything is drafted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from configs import CONFIG_DIR, choices, composed
from methods.build import ConfigError, build_law, build_method, build_model, check_draft_model
from methods.targets.codec import ChatCodec
from methods.targets.loading import LoadedModel
from methods.targets.vocabulary import num_other_tokens

NONE = {"name": None}
DRAFTS = {"name": "draft_model"}
COPIES = {"name": "prompt_lookup"}
TOY = {"kind": "toy", "name": "small-toy"}


def toy(vocab_size: int = 32, name: str = "toy") -> LoadedModel:
    return build_model({"kind": "toy", "name": name, "vocab_size": vocab_size})


@dataclass
class Words:
    """A tokenizer as far as its tokens go."""

    ids: dict[str, int]
    eos_token_id: int | None = None

    def get_vocab(self) -> dict[str, int]:
        return self.ids


def codec(**ids: int) -> ChatCodec:
    return ChatCodec(tokenizer=Words(ids), template="auto", template_kwargs={}, system_prompt=None)


def test_tokens_are_compared_by_their_ids() -> None:
    target = codec(a=0, b=1, c=2)
    assert num_other_tokens(target, target) == 0
    assert num_other_tokens(codec(a=0, b=1, c=2, more=3), target) == 0
    assert num_other_tokens(codec(a=0, b=1), target) == 1
    assert num_other_tokens(codec(a=0, b=2, c=1), target) == 2
    assert num_other_tokens(toy(8).codec, target) == 3


def test_a_draft_model_knows_the_tokens_of_its_target() -> None:
    check_draft_model(toy(40), toy(32))
    message = "draft_model=small must have the tokens of model=toy under the same ids, but 8 of 32"
    with pytest.raises(ConfigError, match=message):
        check_draft_model(toy(24, name="small"), toy(32))


def test_a_draft_model_has_a_row_for_each_token_of_its_target() -> None:
    """Some checkpoints have fewer rows than their tokenizer has tokens."""
    draft = replace(toy(24), codec=toy(32).codec)
    with pytest.raises(ConfigError, match=r"must know all tokens of model=toy \(32\), it has 24"):
        check_draft_model(draft, toy(32))


def test_a_model_without_growing_trees_cannot_draft() -> None:
    class Split:
        """Like a model that is split over processes: it has no `extend_tree`."""

        vocab_size, max_context, num_committed, eos_ids = 32, None, 0, frozenset[int]()

        def reset(self) -> None: ...
        def prefill(self, *args: Any, **options: Any) -> None: ...
        def forward_tree(self, tree: Any) -> None: ...
        def commit(self, path: Any) -> None: ...

    draft = replace(toy(), target=Split())
    with pytest.raises(ConfigError, match="Split has no trees that grow"):
        check_draft_model(draft, toy())


@pytest.mark.parametrize(
    ("retriever", "draft_model", "message"),
    [
        (DRAFTS, {"kind": None}, "draft_model drafts with a model of its own, but there is none"),
        (COPIES, TOY, "prompt_lookup drafts without a model, draft_model=small-toy would be"),
        (NONE, {"kind": "toy", "name": None}, "none drafts without a model, draft_model=toy would"),
    ],
)
def test_retriever_and_draft_model_go_together(
    retriever: dict[str, Any], draft_model: dict[str, Any], message: str
) -> None:
    config = composed("method=pld") | {"retriever": retriever, "draft_model": draft_model}
    with pytest.raises(ConfigError, match=message):
        build_method(config, build_law(config))


def test_a_draft_model_that_is_not_named_is_told() -> None:
    fields = {"kind": "huggingface", "name_or_path": None}
    with pytest.raises(ConfigError, match=r"draft_model=hf needs draft_model\.name_or_path=HUB"):
        build_model(fields, "draft_model")
    with pytest.raises(ConfigError, match=r"draft_model\.kind must be one of .*, got 'onnx'"):
        build_model({"kind": "onnx"}, "draft_model")


def test_every_model_has_a_draft_model() -> None:
    """A file in `draft_model/of` says which, so that `method=sps` runs with any target."""
    files = {path.stem for path in (CONFIG_DIR / "draft_model" / "of").glob("*.yaml")}
    assert files == set(choices("model"))


@pytest.mark.parametrize("model", choices("model"))
def test_the_draft_model_follows_the_target(model: str) -> None:
    config = composed("method=sps", f"model={model}")
    assert config["draft_model"]["kind"] == config["model"]["kind"]
    assert "node_budget" in config["draft_model"]
    chosen = composed("method=sps", f"model={model}", "draft_model=toy")
    assert chosen["draft_model"]["kind"] == "toy"
