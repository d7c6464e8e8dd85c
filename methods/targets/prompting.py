r"""Turns of a conversation -> the ids that a target model is prefilled with.

Where BOS comes from is the classical fault: the chat template writes one and the tokenizer adds
another, or neither does. There is one path here. Text is tokenised without special tokens; a
template may write BOS; if the tokenizer starts texts with BOS and the template did not, it is put
in front. Two BOS are an error and never repaired: the template that writes them is wrong.

    template writes BOS   tokenizer adds BOS   ids
    yes                   yes / no             [bos] + text      (Llama 3, Gemma)
    no                    yes                  [bos] + text      (Vicuna, most base models)
    no                    no                   text              (Qwen)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jinja2.exceptions import TemplateError

TEMPLATE_FOLDER = Path(__file__).parent / "chat_templates"
PLAIN_SEPARATOR = "\n\n"
"""Between turns for models without a chat template."""

Turn = tuple[str, str]
"""Role (`system`, `user` or `assistant`) and text."""


class PromptError(ValueError):
    """Turns that make no prompt, or a chat template that refuses them."""


@runtime_checkable
class ChatTokenizer(Protocol):
    """What is used of a transformers tokenizer."""

    name_or_path: str
    chat_template: Any
    bos_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def apply_chat_template(self, conversation: list[dict[str, str]], **settings: Any) -> Any: ...


def encode_chat(
    tokenizer: ChatTokenizer,
    turns: Sequence[Turn],
    *,
    template: str = "auto",
    system_prompt: str | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> list[int]:
    """The prompt that asks for the next assistant turn.

    Args:
        tokenizer: Of the target model.
        turns: An optional system turn, then user and assistant in turn, ending with a user.
        template: `auto` (the tokenizer's own if it has one), `none` (plain text), a jinja file, or
            the name of a template in `chat_templates/`.
        system_prompt: Text of a system turn; None for what the template does by default.
        template_kwargs: Further variables of the template, e.g. `enable_thinking`.

    Raises:
        PromptError: If the turns are empty, out of order or blank, if there are two system texts,
            if the template refuses them, or if the prompt starts with two BOS tokens.
        FileNotFoundError: If `template` names neither a file nor a packaged template.
    """
    system, dialogue = _split_system(turns, system_prompt)
    _check_dialogue(dialogue)
    text = load_template(tokenizer, template)
    if text is None:
        parts = ([system] if system else []) + [content for _, content in dialogue]
        ids = tokenizer.encode(PLAIN_SEPARATOR.join(parts), add_special_tokens=False)
    else:
        settings = {**(template_kwargs or {}), "chat_template": text, "add_generation_prompt": True}
        ids = _apply_template(tokenizer, system, dialogue, settings)
    return _with_one_bos(tokenizer, ids)


def load_template(tokenizer: ChatTokenizer, template: str) -> str | None:
    """The jinja text that `template` means for this tokenizer; None for plain text.

    Raises:
        FileNotFoundError: If `template` names neither a file nor a packaged template.
    """
    if template == "none":
        return None
    if template == "auto":
        return _own_template(tokenizer)
    for path in (TEMPLATE_FOLDER / f"{template}.jinja", Path(template).expanduser()):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    packaged = ", ".join(sorted(path.stem for path in TEMPLATE_FOLDER.glob("*.jinja")))
    raise FileNotFoundError(
        f"chat_template must be auto, none, a jinja file or a packaged template ({packaged}), "
        f"got {template}"
    )


def _own_template(tokenizer: ChatTokenizer) -> str | None:
    own = tokenizer.chat_template
    if isinstance(own, Mapping):  # Some tokenizers carry several, by name.
        own = own.get("default")
    return own or None


def _split_system(
    turns: Sequence[Turn], system_prompt: str | None
) -> tuple[str | None, list[Turn]]:
    dialogue = list(turns)
    if not dialogue or dialogue[0][0] != "system":
        return system_prompt or None, dialogue
    if system_prompt:
        raise PromptError(
            "there must be one system text, got a system turn and model.system_prompt"
        )
    return dialogue[0][1], dialogue[1:]


def _check_dialogue(dialogue: Sequence[Turn]) -> None:
    for i, (role, text) in enumerate(dialogue):
        expected = "user" if i % 2 == 0 else "assistant"
        if role != expected:
            raise PromptError(f"turn {i} must be by {expected}, got {role}")
        if role == "user" and not text.strip():
            raise PromptError(f"turn {i} is empty: a prompt must hold some text")
    if len(dialogue) % 2 == 0:
        raise PromptError(f"turns must end with a user's, got {len(dialogue)} turns")


def _apply_template(
    tokenizer: ChatTokenizer, system: str | None, dialogue: list[Turn], settings: dict[str, Any]
) -> list[int]:
    messages = [{"role": role, "content": text} for role, text in dialogue]
    try:
        if system and _takes_system(tokenizer, system, messages, settings):
            messages = [{"role": "system", "content": system}, *messages]
        elif system:
            first = f"{system}\n\n{messages[0]['content']}"
            messages = [{"role": "user", "content": first}, *messages[1:]]
        output = tokenizer.apply_chat_template(messages, tokenize=True, **settings)
    except TemplateError as error:
        raise PromptError(
            f"the chat template of {tokenizer.name_or_path} refuses the turns: {error}. Set "
            "model.chat_template to none or to a jinja file that takes them."
        ) from error
    # Releases differ in whether the ids come bare or in a dictionary with an attention mask.
    ids = output["input_ids"] if isinstance(output, Mapping) else output
    return [int(token_id) for token_id in ids]


def _takes_system(
    tokenizer: ChatTokenizer, system: str, messages: list[dict[str, str]], settings: dict[str, Any]
) -> bool:
    """Whether the template renders a system turn: some raise (Gemma), some drop it silently."""
    with_system = [{"role": "system", "content": system}, *messages]
    try:
        text = tokenizer.apply_chat_template(with_system, tokenize=False, **settings)
    except TemplateError:
        return False
    return system.strip() in text


def _with_one_bos(tokenizer: ChatTokenizer, ids: list[int]) -> list[int]:
    bos = tokenizer.bos_token_id
    if bos is None:
        return ids
    if _adds_bos(tokenizer) and ids[:1] != [bos]:
        return [bos, *ids]
    if ids[:2] == [bos, bos]:
        raise PromptError(
            f"a prompt of {tokenizer.name_or_path} must start with one BOS (id {bos}), got two: "
            "the chat template or the text writes it twice. Set model.chat_template to a jinja "
            "file that writes it once."
        )
    return ids


def _adds_bos(tokenizer: ChatTokenizer) -> bool:
    """Whether the tokenizer by itself starts a text with BOS."""
    bare = tokenizer.encode("a", add_special_tokens=False)
    full = tokenizer.encode("a", add_special_tokens=True)
    return full[:1] == [tokenizer.bos_token_id] and full != bare
