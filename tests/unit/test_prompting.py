"""Turns to ids: one BOS, whoever writes it; system texts; plain models; the packaged templates."""

from __future__ import annotations

from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from methods.targets import smollm2
from methods.targets.errors import ModelUnavailable
from methods.targets.prompting import PromptError, Turn, encode_chat, load_template

WORDS = ["<s>", "</s>", "<unk>", "hi", "yes", "go", "be", "kind", "a", "U", "A", "S"]
IDS = {word: i for i, word in enumerate(WORDS)}
BOS = IDS["<s>"]

LETTERS = """{%- for m in messages -%}
{{ {'user': ' U ', 'assistant': ' A ', 'system': ' S '}[m['role']] + m['content'] }}
{%- endfor -%}{%- if add_generation_prompt -%}{{ ' A' }}{%- endif -%}"""
WITH_BOS = "{{ bos_token }}" + LETTERS
TWICE_BOS = "{{ bos_token }}{{ bos_token }}" + LETTERS
NO_SYSTEM = (
    "{%- if messages[0]['role'] == 'system' -%}"
    "{{ raise_exception('System role not supported') }}{%- endif -%}" + WITH_BOS
)
DROPS_SYSTEM = (
    "{%- if messages[0]['role'] == 'system' -%}"
    "{%- set messages = messages[1:] -%}{%- endif -%}" + WITH_BOS
)
REFUSES = "{{ raise_exception('Conversation roles must alternate') }}"


def tiny(template: str | None = None, *, adds_bos: bool = True) -> PreTrainedTokenizerFast:
    """One token per word."""
    tokenizer = Tokenizer(models.WordLevel(IDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", BOS)]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.chat_template = template
    return fast


def words(ids: list[int]) -> str:
    return " ".join(WORDS[i] for i in ids)


@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize(
    ("template", "expected"), [(WITH_BOS, "<s> U hi A"), (LETTERS, "U hi A"), (None, "hi")]
)
def test_bos_once_if_the_tokenizer_or_the_template_wants_it(
    template: str | None, expected: str, adds_bos: bool
) -> None:
    ids = encode_chat(tiny(template, adds_bos=adds_bos), [("user", "hi")])
    body = expected.removeprefix("<s> ")
    assert words(ids) == (f"<s> {body}" if adds_bos or template == WITH_BOS else body)


def test_two_bos_are_an_error_that_names_the_tokenizer() -> None:
    tokenizer = tiny(TWICE_BOS)
    tokenizer.name_or_path = "owner/name"
    with pytest.raises(PromptError, match=r"owner/name must start with one BOS \(id 0\), got two"):
        encode_chat(tokenizer, [("user", "hi")])


def test_tokenizer_without_bos() -> None:
    tokenizer = tiny(LETTERS, adds_bos=False)
    tokenizer.bos_token = None
    assert words(encode_chat(tokenizer, [("user", "hi")])) == "U hi A"


def test_turns_in_order() -> None:
    turns = [("user", "hi"), ("assistant", "yes"), ("user", "go")]
    assert words(encode_chat(tiny(WITH_BOS), turns)) == "<s> U hi A yes U go A"
    assert words(encode_chat(tiny(), turns)) == "<s> hi yes go"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (WITH_BOS, "<s> S be kind U hi A"),
        (NO_SYSTEM, "<s> U be kind hi A"),
        (DROPS_SYSTEM, "<s> U be kind hi A"),
        (None, "<s> be kind hi"),
    ],
    ids=["taken", "refused", "dropped", "plain"],
)
def test_system_text_is_never_lost(template: str | None, expected: str) -> None:
    by_setting = encode_chat(tiny(template), [("user", "hi")], system_prompt="be kind")
    by_turn = encode_chat(tiny(template), [("system", "be kind"), ("user", "hi")])
    assert words(by_setting) == words(by_turn) == expected


def test_template_none_ignores_the_tokenizers_template() -> None:
    assert words(encode_chat(tiny(WITH_BOS), [("user", "hi")], template="none")) == "<s> hi"


def test_template_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("{{ 'go ' + messages[0]['content'] }}")
    ids = encode_chat(tiny(WITH_BOS), [("user", "hi")], template=str(tmp_path / "mine.jinja"))
    assert words(ids) == "<s> go hi"


def test_unknown_template_lists_the_packaged_ones() -> None:
    with pytest.raises(FileNotFoundError, match=r"packaged template \(.*vicuna.*\), got vicunna"):
        load_template(tiny(), "vicunna")


def test_template_kwargs_reach_the_template() -> None:
    tokenizer = tiny("{{ 'yes' if enable_thinking is false else 'go' }}")
    ids = encode_chat(tokenizer, [("user", "hi")], template_kwargs={"enable_thinking": False})
    assert words(ids) == "<s> yes"
    assert words(encode_chat(tokenizer, [("user", "hi")])) == "<s> go"


def test_default_of_several_templates() -> None:
    tokenizer = tiny()
    tokenizer.chat_template = {"default": WITH_BOS, "tool_use": REFUSES}
    assert words(encode_chat(tokenizer, [("user", "hi")])) == "<s> U hi A"


@pytest.mark.parametrize("kind", [list, UserDict])
def test_ids_bare_or_in_a_dictionary(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tiny(WITH_BOS)
    ids = [BOS, IDS["hi"]]
    output: Any = ids if kind is list else UserDict({"input_ids": ids, "attention_mask": [1, 1]})
    monkeypatch.setattr(tokenizer, "apply_chat_template", lambda *_, **__: output)
    assert encode_chat(tokenizer, [("user", "hi")]) == ids


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([], "turns must end with a user's, got 0 turns"),
        ([("user", "hi"), ("assistant", "yes")], "turns must end with a user's, got 2 turns"),
        ([("assistant", "yes")], "turn 0 must be by user, got assistant"),
        ([("user", "hi"), ("user", "hi")], "turn 1 must be by assistant, got user"),
        ([("human", "hi")], "turn 0 must be by user, got human"),
        ([("user", " \n")], "turn 0 is empty"),
    ],
)
def test_turns_that_make_no_prompt(turns: list[Turn], expected: str) -> None:
    with pytest.raises(PromptError, match=expected):
        encode_chat(tiny(WITH_BOS), turns)


def test_two_system_texts() -> None:
    with pytest.raises(PromptError, match="one system text"):
        encode_chat(tiny(WITH_BOS), [("system", "be"), ("user", "hi")], system_prompt="kind")


@pytest.mark.parametrize("system_prompt", [None, "be kind"])
def test_template_that_refuses_the_turns(system_prompt: str | None) -> None:
    with pytest.raises(PromptError, match=r"refuses the turns: Conversation roles must alternate"):
        encode_chat(tiny(REFUSES), [("user", "hi")], system_prompt=system_prompt)


def render(template: str, turns: list[Turn]) -> str:
    tokenizer = tiny()
    messages = [{"role": role, "content": text} for role, text in turns]
    text = tokenizer.apply_chat_template(
        messages,
        chat_template=load_template(tokenizer, template),
        add_generation_prompt=True,
        tokenize=False,
    )
    assert isinstance(text, str)
    return text


def test_vicuna_is_fastchats_prompt() -> None:
    """Byte for byte what FastChat's conversation `vicuna_v1.1` gives for two questions."""
    turns = [("user", "Hi?"), ("assistant", "Hello."), ("user", "Go on.")]
    system = (
        "A chat between a curious user and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the user's questions."
    )
    assert render("vicuna", turns[:1]) == f"{system} USER: Hi? ASSISTANT:"
    expected = f"{system} USER: Hi? ASSISTANT: Hello.</s>USER: Go on. ASSISTANT:"
    assert render("vicuna", turns) == expected
    assert render("vicuna", [("system", "Be kind."), *turns[:1]]) == (
        "Be kind. USER: Hi? ASSISTANT:"
    )


def test_vicuna_starts_with_the_tokenizers_bos() -> None:
    ids = encode_chat(tiny(), [("user", "hi")], template="vicuna")
    assert ids[0] == BOS
    assert BOS not in ids[1:]


@pytest.mark.slow
class TestSmolLM2:
    """The real tokenizer: writes BOS by its template, adds none of its own."""

    def encode(self, turns: list[Turn], **settings: Any) -> tuple[str, list[int]]:
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(smollm2.ensure_smollm2())
        except ModelUnavailable as error:
            pytest.skip(str(error))
        ids = encode_chat(tokenizer, turns, **settings)
        return tokenizer.decode(ids), ids

    def test_default_system_prompt(self) -> None:
        text, ids = self.encode([("user", "Add 12 and  3.")])
        assert text == (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nAdd 12 and  3.<|im_end|>\n<|im_start|>assistant\n"
        )
        assert ids[:3] == [1, 9690, 198]

    def test_turns_and_own_system_prompt(self) -> None:
        turns = [("user", "Hi"), ("assistant", "Hello"), ("user", "Bye")]
        text, _ = self.encode(turns, system_prompt="Be kind.")
        assert text == (
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>"
            "assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_plain(self) -> None:
        assert self.encode([("user", "Once upon")], template="none")[0] == "Once upon"
