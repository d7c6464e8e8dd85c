"""Conversations and texts -> documents of token ids, for datastores.

One answer is one document: the prompt as the target model sees it, and the answer behind it. A
later turn's prompt repeats the earlier turns; what it has in common with the document before is not
stored again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.datasets.base import Prompt
from benchmarks.sequences import shared_prefix
from methods.targets.base import TextCodec


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document.

    Attributes:
        name: Where it came from, for messages.
        token_ids: All ids that the target model would see.
        num_known: Leading ids that an earlier document of the same conversation holds.
        num_prompt: Leading ids before the answer; 0 if all is answer, as in a plain text.
        texts: What is compared with test data: all turns and answers so far, without template.
    """

    name: str
    token_ids: tuple[int, ...]
    num_known: int = 0
    num_prompt: int = 0
    texts: tuple[str, ...] = ()

    @property
    def stored_ids(self) -> tuple[int, ...]:
        """What a datastore keeps."""
        return self.token_ids[self.num_known :]


Answers = Sequence[Sequence[int] | None]
"""Ids of the answer to each turn of a prompt; None if a turn has none."""


def reference_answers(prompt: Prompt, codec: TextCodec) -> list[list[int] | None]:
    """The dataset's own answers, each ended by EOS."""
    end = [] if codec.eos_id is None else [codec.eos_id]
    texts = [*prompt.references, *[""] * (len(prompt.turns) - len(prompt.references))]
    return [[*codec.encode_text(text), *end] if text else None for text in texts]


def conversation(
    prompt: Prompt, answers: Answers, codec: TextCodec, *, up_to: int
) -> list[tuple[str, str]]:
    """The messages before the answer to turn `up_to`, earlier answers included as text."""
    messages: list[tuple[str, str]] = []
    for number, text in enumerate(prompt.turns[: up_to + 1]):
        messages.append(("user", text))
        if number < up_to:
            messages.append(("assistant", codec.decode(answers[number] or ())))
    return messages


def documents_of(prompt: Prompt, answers: Answers, codec: TextCodec) -> Iterator[Document]:
    """One document per answer, in the order of the turns."""
    earlier: tuple[int, ...] = ()
    for number, answer in enumerate(answers):
        if answer is None:
            return  # Later turns would follow an answer that nobody gave.
        messages = conversation(prompt, answers, codec, up_to=number)
        prompt_ids = codec.encode(messages)
        token_ids = (*prompt_ids, *answer)
        yield Document(
            name=f"{prompt.prompt_id}/{number + 1}",
            token_ids=token_ids,
            num_known=shared_prefix(earlier, token_ids),
            num_prompt=len(prompt_ids),
            texts=(*(text for _, text in messages), codec.decode(answer)),
        )
        earlier = token_ids


def text_documents(pieces: Iterable[tuple[object, str]], codec: TextCodec) -> Iterator[Document]:
    """One document per piece of text."""
    for number, (name, text) in enumerate(pieces):
        ids = tuple(codec.encode_text(text))
        yield Document(name=f"{name}/{number}", token_ids=ids, texts=(text,))
