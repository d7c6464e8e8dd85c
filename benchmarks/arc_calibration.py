"""The constants of verifier `arc` for one model: how far its next law moves, and what tells so.

At each position of greedy answers the argmax t and the second most probable token x are forwarded
side by side. JS is the Jensen-Shannon divergence, in nats, of the two laws that follow, over the
union of their most probable tokens. With raw surrogates e = ||w (E[x] - E[t])||^2 and
l = (ln p(t) - ln p(x))^2, and Q a high quantile:

    c_e = Q(JS / e)    c_l = Q(JS / l)    tau_delta = Q(min(c_e e, c_l l)) / (1 - theta)

Source: ARC-Decode (NeuraLiying/ARC-Decode, evaluation/arc_lts_calibrate.py); the released code
samples its answers at temperature 1, and like it the largest 0.5 % of values are left out.
Cost: one forward of two rows per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from methods.targets.base import TargetModel
from primitives.structures.scaled_embeddings import ScaledEmbeddings
from primitives.structures.top_tokens import top_tokens
from primitives.types import DraftTree

UNION_SIZE = 128
"""Most probable tokens of each law that the divergence looks at."""
KEPT_SHARE = 0.995


@dataclass(frozen=True, kw_only=True)
class Swap:
    """One position where the second most probable token took the place of the argmax.

    Attributes:
        divergence: JS of the laws behind the two tokens, in nats.
        embedding: Squared scaled distance of their embeddings.
        logit: Squared difference of their log-probabilities, in nats squared.
    """

    divergence: float
    embedding: float
    logit: float


@dataclass(frozen=True, kw_only=True)
class ArcConstants:
    """Fields of verifier `arc` that depend on the model; see there."""

    c_e: float
    c_l: float
    tau_delta: float


def collect_swaps(
    target: TargetModel,
    embeddings: ScaledEmbeddings,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
) -> list[Swap]:
    """Swaps at the positions of one greedy answer, until EOS.

    Args:
        target: The target model; its cache is reset.
        embeddings: Its input embeddings.
        prompt_ids: At least one id.
        max_new_tokens: Most positions.

    Raises:
        ContextOverflow: If prompt and answer do not fit the target model.
        ValueError: If the prompt is empty or holds an id outside the vocabulary.
    """
    swaps = []
    with torch.inference_mode():
        target.reset()
        out = target.prefill(prompt_ids, reserve=max_new_tokens, draft_rows=1)
        logits = out.last_logits
        for _ in range(max_new_tokens):
            best, second = top_tokens(logits[None], 2)[0].tolist()
            after = target.forward_tree(DraftTree.from_nodes([best, second], [-1, -1])).logits
            distance = embeddings.squared_distances(np.array([second]), np.array([best]))
            swap = Swap(
                divergence=next_divergence(after[0], after[1]),
                embedding=float(distance[0]),
                logit=float(logits[best].double() - logits[second].double()) ** 2,
            )
            swaps.append(swap)
            target.commit((0,))
            logits = after[0]
            if best in target.eos_ids:
                break
    return swaps


def next_divergence(
    first: Float[Tensor, "v"], second: Float[Tensor, "v"], union_size: int = UNION_SIZE
) -> float:
    """JS in nats of two laws (logits), restricted to the most probable tokens of either."""
    logits = torch.stack([first, second]).double()
    k = min(union_size, logits.shape[1])
    ids = torch.unique(logits.topk(k, dim=-1).indices)  # Of both rows.
    p, q = torch.softmax(logits[:, ids], dim=-1)
    middle = (p + q) / 2
    xlogy = torch.special.xlogy
    return float(sum((xlogy(law, law) - xlogy(law, middle)).sum() for law in (p, q)) / 2)


def fit(swaps: Sequence[Swap], *, level: float = 0.95, theta: float = 0.3) -> ArcConstants:
    """The constants that hold for about a share `level` of the swaps.

    Args:
        swaps: Ratios are taken where the surrogate is above 0.
        level: Which quantile, in (0, 1).
        theta: The field of the verifier that they are for, in [0, 1).

    Raises:
        ValueError: If no swap has a surrogate above 0.
    """
    table = np.array([(swap.divergence, swap.embedding, swap.logit) for swap in swaps])
    divergences, embedding, logit = table.reshape(-1, 3).T
    c_e = _quantile(divergences[embedding > 0] / embedding[embedding > 0], level)
    c_l = _quantile(divergences[logit > 0] / logit[logit > 0], level)
    risks = np.minimum(c_e * embedding, c_l * logit)
    return ArcConstants(c_e=c_e, c_l=c_l, tau_delta=_quantile(risks, level) / (1 - theta))


def _quantile(values: Float[np.ndarray, "m"], level: float) -> float:
    """Without the largest half percent, which may be ratios of next to nothing.

    Raises:
        ValueError: If there are no values.
    """
    if not len(values):
        raise ValueError(
            "no position with two different tokens: calibrate on more or longer answers"
        )
    kept = np.sort(values)[: round(KEPT_SHARE * (len(values) - 1)) + 1]
    return float(np.quantile(kept, level))
