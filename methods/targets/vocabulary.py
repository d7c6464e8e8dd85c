"""Whether ids of one tokenizer mean the same tokens in another: what drafting needs of two models.

Chat templates do not count: a draft model continues ids that the target's template has made.
"""

from __future__ import annotations

from collections.abc import Mapping

from methods.targets.base import TextCodec
from methods.targets.codec import ChatCodec
from methods.targets.toy import ToyCodec


def num_other_tokens(draft: TextCodec, target: TextCodec) -> int:
    """How many tokens of the target the draft model's tokenizer lacks, or has under other ids.

    Tokens that only the draft model knows do not count.
    """
    theirs = _ids_of(draft)
    return sum(theirs.get(token) != token_id for token, token_id in _ids_of(target).items())


def _ids_of(codec: TextCodec) -> Mapping[str, int]:
    """Ids by token.

    Raises:
        TypeError: If the codec shows no tokens.
    """
    if isinstance(codec, ChatCodec):
        vocabulary: Mapping[str, int] = codec.tokenizer.get_vocab()
        return vocabulary
    if isinstance(codec, ToyCodec):
        return {codec.decode([token_id]): token_id for token_id in range(codec.vocab_size)}
    raise TypeError(f"{type(codec).__name__} shows no tokens to compare")
