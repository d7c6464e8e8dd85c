"""Text to ids and back by a Hugging Face tokenizer and a chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from methods.targets.prompting import encode_chat


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatCodec:
    """Conversations to ids by the tokenizer and its chat template.

    Attributes:
        tokenizer: A Hugging Face tokenizer.
        template: `auto`, `none`, a packaged template's name or a file.
        template_kwargs: Passed to the template.
        system_prompt: Put before the conversation; None leaves it to the template.
    """

    tokenizer: Any
    template: str
    template_kwargs: dict[str, Any]
    system_prompt: str | None

    def encode(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """See `TextCodec.encode`."""
        return encode_chat(
            self.tokenizer,
            messages,
            template=self.template,
            system_prompt=self.system_prompt,
            template_kwargs=self.template_kwargs,
        )

    @property
    def eos_id(self) -> int | None:
        """See `TextCodec.eos_id`."""
        eos_id = self.tokenizer.eos_token_id
        return None if eos_id is None else int(eos_id)

    def encode_text(self, text: str) -> list[int]:
        """See `TextCodec.encode_text`."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """See `TextCodec.decode`."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def ids_by_token(self) -> Mapping[str, int]:
        """See `TextCodec.ids_by_token`."""
        vocabulary: Mapping[str, int] = self.tokenizer.get_vocab()
        return vocabulary
