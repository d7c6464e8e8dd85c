"""From labelled mismatches to a head: logistic regression, judged on prompts that it has not seen.

Features are standardised; with z the standardised feature and y = 1 for unimportant mismatches

    minimise over w, b:  sum log(1 + exp(-(2 y - 1) (w · z + b))) + l2 / 2 ||w||^2

Figures come from predictions for each fold of prompts by a head trained on the others, whose `l2`
was chosen inside those; the head that is kept is trained on all of them. Its threshold is chosen on
all of these predictions; what one rejects and keeps is counted, fold by fold, under a threshold
chosen on the predictions for the other folds.

Source: AutoJudge (Garipov et al. 2025, arXiv 2504.20039; garipovroma/autojudge,
src/train_head_gsm8k.py): standardisation, logistic regression, a grid of its strength. There the
strength is chosen by the AUC that is reported; the nested folds are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit
from scipy.stats import rankdata

from benchmarks.judge_labels import Mismatch
from methods.judge_head import LinearHead

L2_GRID = (1.0, 10.0, 100.0, 1e3, 1e4)
NUM_FOLDS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """Labelled hidden states.

    Attributes:
        features: Hidden states.
        is_fine: Whether the mismatch was unimportant.
        groups: Which prompt each comes from.
    """

    features: Float[np.ndarray, "m d"]
    is_fine: Bool[np.ndarray, "m"]
    groups: Int[np.ndarray, "m"]

    @classmethod
    def of(cls, mismatches: Sequence[Sequence[Mismatch]]) -> Labels:
        """Those of several prompts.

        Raises:
            ValueError: If there are labels of fewer than two prompts, or of one kind only.
        """
        every = [label for labels in mismatches for label in labels]
        num_prompts = sum(map(bool, mismatches))
        if num_prompts < 2:
            raise ValueError(
                f"a head needs mismatches of two prompts at least, got {len(every)} of "
                f"{num_prompts}: take a larger limit or another source of drafts"
            )
        is_fine = np.array([not label.is_important for label in every])
        if is_fine.all() or not is_fine.any():
            kind = "unimportant" if is_fine.all() else "important"
            raise ValueError(
                f"all {len(every)} mismatches are {kind}: there is nothing to tell apart. Take a "
                "larger limit, or another rule for answers that are still right"
            )
        rows = [label.hidden.double().cpu().numpy() for label in every]
        counts = [len(labels) for labels in mismatches]
        groups = np.repeat(np.arange(len(mismatches)), counts)
        return cls(features=np.stack(rows), is_fine=is_fine, groups=groups)

    def only(self, chosen: Bool[np.ndarray, "m"]) -> Labels:
        """A part of them."""
        return Labels(
            features=self.features[chosen],
            is_fine=self.is_fine[chosen],
            groups=self.groups[chosen],
        )


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """How heads do on prompts that they have not seen; see `HeadFacts` for the fields."""

    auc: float
    accuracy: float
    threshold: float
    rejected: float
    recall: float


def train(labels: Labels, *, rejected: float = 0.9) -> tuple[LinearHead, float, HeldOut]:
    """The head, its strength of regularisation, and what to expect of it.

    Args:
        labels: Of two kinds and two prompts at least.
        rejected: Share of important mismatches that the threshold is to reject, in [0, 1]; on
            those that it was chosen on it does, of others expect what `HeldOut` says.

    Raises:
        ValueError: If no fold of prompts has labels of both kinds.
    """
    probs = out_of_fold(labels, lambda part: fit_head(part, choose_l2(part)))
    folds = folds_of(labels.groups)
    is_kept = kept_out_of_fold(labels.is_fine, probs, folds, rejected)
    l2 = choose_l2(labels)
    held_out = HeldOut(
        auc=auc(labels.is_fine, probs, folds),
        accuracy=float(((probs > 0.5) == labels.is_fine).mean()),
        threshold=rejecting_threshold(labels.is_fine, probs, rejected),
        rejected=float((~is_kept)[~labels.is_fine].mean()),
        recall=float(is_kept[labels.is_fine].mean()),
    )
    return fit_head(labels, l2), l2, held_out


def fit_head(labels: Labels, l2: float) -> LinearHead:
    """Logistic regression; where all labels are of one kind, a head that knows the share only."""
    mean, scale = labels.features.mean(axis=0), labels.features.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    rows = (labels.features - mean) / scale
    signs = np.where(labels.is_fine, 1.0, -1.0)
    num, num_fine = len(signs), int(labels.is_fine.sum())
    start = np.append(np.zeros(rows.shape[1]), logit((num_fine + 1) / (num + 2)))

    def slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        margins = signs * (rows @ point[:-1] + point[-1])
        pull = -signs * expit(-margins)
        gradient = np.append(rows.T @ pull + l2 * point[:-1], pull.sum())
        return float(l2 / 2 * (point[:-1] ** 2).sum() - log_expit(margins).sum()), gradient

    def curvature(point: np.ndarray, step: np.ndarray) -> np.ndarray:
        odds = rows @ point[:-1] + point[-1]
        change = expit(odds) * expit(-odds) * (rows @ step[:-1] + step[-1])
        return np.append(rows.T @ change + l2 * step[:-1], change.sum())

    point = start
    if 0 < num_fine < num:
        point = minimize(slope, start, jac=True, hessp=curvature, method="Newton-CG").x
    weights, bias, mean, scale = (
        torch.tensor(value, dtype=torch.float32) for value in (point[:-1], point[-1], mean, scale)
    )
    return LinearHead(weights=weights, bias=bias, mean=mean, scale=scale)


def choose_l2(labels: Labels, grid: Sequence[float] = L2_GRID) -> float:
    """The strength with the best log-likelihood out of fold; the larger one of equals."""
    if len(np.unique(labels.groups)) < 2:
        return max(grid)
    losses = {}
    for l2 in sorted(grid, reverse=True):
        probs = out_of_fold(labels, lambda part, l2=l2: fit_head(part, l2))  # type: ignore[misc]
        right = np.where(labels.is_fine, probs, 1 - probs)
        losses[l2] = -np.log(np.maximum(right, 1e-12)).sum()
    return min(losses, key=losses.__getitem__)


def folds_of(groups: Int[np.ndarray, "m"], num_folds: int = NUM_FOLDS) -> Int[np.ndarray, "m"]:
    """The fold of each label: prompts are dealt out in turn."""
    prompts, places = np.unique(groups, return_inverse=True)
    folds: np.ndarray = places % min(num_folds, len(prompts))
    return folds


def out_of_fold(labels: Labels, fit: Callable[[Labels], LinearHead]) -> Float[np.ndarray, "m"]:
    """For each label the probability given by a head that was fitted to the other folds."""
    folds = folds_of(labels.groups)
    probs = np.zeros(len(folds))
    for fold in range(folds.max() + 1):
        is_out = folds == fold
        head = fit(labels.only(~is_out))
        probs[is_out] = head(torch.from_numpy(labels.features[is_out])).double().numpy()
    return probs


def auc(
    is_fine: Bool[np.ndarray, "m"], probs: Float[np.ndarray, "m"], folds: Int[np.ndarray, "m"]
) -> float:
    """Chance that an unimportant mismatch gets more than an important one of its fold.

    Ties count half. Pairs of different folds do not count, since different heads judged them: each
    leans to what is rare in the fold that it has not seen.

    Raises:
        ValueError: If no fold has labels of both kinds.
    """
    num_pairs, num_right = 0, 0.0
    for fold in np.unique(folds):
        kinds, scores = is_fine[folds == fold], probs[folds == fold]
        num_fine = int(kinds.sum())
        num_pairs += num_fine * (len(kinds) - num_fine)
        num_right += float(rankdata(scores)[kinds].sum()) - num_fine * (num_fine + 1) / 2
    if num_pairs == 0:
        raise ValueError("no fold has mismatches of both kinds: take a larger limit")
    return num_right / num_pairs


def rejecting_threshold(
    is_fine: Bool[np.ndarray, "m"], probs: Float[np.ndarray, "m"], rejected: float
) -> float:
    """The least threshold at which a share of the important mismatches is not above it."""
    important = np.sort(probs[~is_fine])
    num_rejected = int(np.ceil(rejected * len(important) - 1e-9))
    return float(important[num_rejected - 1]) if num_rejected else 0.0


def kept_out_of_fold(
    is_fine: Bool[np.ndarray, "m"],
    probs: Float[np.ndarray, "m"],
    folds: Int[np.ndarray, "m"],
    rejected: float,
) -> Bool[np.ndarray, "m"]:
    """Which mismatches are above the threshold that rejects a share of those of the other folds."""
    is_kept = np.zeros(len(probs), dtype=bool)
    for fold in np.unique(folds):
        is_out = folds == fold
        threshold = rejecting_threshold(is_fine[~is_out], probs[~is_out], rejected)
        is_kept[is_out] = probs[is_out] > threshold
    return is_kept
