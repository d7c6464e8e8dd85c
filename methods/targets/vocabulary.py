"""Whether ids of one tokenizer mean the same tokens in another: what drafting needs of two models.

Chat templates do not count: a draft model continues ids that the target's template has made.
"""

from __future__ import annotations

from methods.targets.base import TextCodec


def num_other_tokens(draft: TextCodec, target: TextCodec) -> int:
    """How many tokens of the target the draft model's tokenizer lacks, or has under other ids.

    Tokens that only the draft model knows do not count.
    """
    theirs = draft.ids_by_token()
    return sum(theirs.get(token) != token_id for token, token_id in target.ids_by_token().items())
