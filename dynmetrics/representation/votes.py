"""From nearest neighbours to classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dynmetrics.representation.neighbours import decoded

WEIGHTS = ("exp", "uniform", "inverse")
_QUERIES = 4096


@dataclass
class Verdict:
    """The predicted class (Q,) of every query, and the rank (Q,) of the right one: 0 is best."""

    predictions: Tensor
    rank: Tensor


def neighbour_weights(keys: Tensor, metric: str, weights: str, temperature: float) -> Tensor:
    """What every neighbour's vote counts (Q, k), in float64.

    "exp" is exp(similarity / temperature), shifted by the largest so that nothing overflows. The
    similarity of a distance is its negative. "inverse" is 1 / (distance + temperature), the
    distance of a cosine being 1 - cosine.
    """
    similarity, _ = decoded(keys)
    present = similarity > -torch.inf
    if metric == "euclidean":
        similarity = -(-similarity).sqrt()
    if weights == "uniform":
        return present.to(torch.float64)
    if weights == "inverse":
        distance = (1 - similarity if metric == "cosine" else -similarity).clamp(min=0)
        return torch.where(present, 1 / (distance + temperature), 0.0)
    peak = similarity.amax(1, keepdim=True)
    return torch.where(present, ((similarity - peak) / temperature).exp(), 0.0)


def vote(weights: Tensor, labels: Tensor, target: Tensor, num_classes: int) -> Verdict:
    """The verdict of neighbours with `weights` and `labels` (Q, k) on queries of class `target`.

    Of classes with equal votes the lower one is ahead.
    """
    starts = range(0, max(len(labels), 1), _QUERIES)
    rows = [slice(start, start + _QUERIES) for start in starts]
    parts = [_vote(weights[r], labels[r], target[r], num_classes) for r in rows]
    return Verdict(torch.cat([p.predictions for p in parts]), torch.cat([p.rank for p in parts]))


def _vote(weights: Tensor, labels: Tensor, target: Tensor, num_classes: int) -> Verdict:
    votes = weights.new_zeros(len(labels), num_classes).scatter_add(1, labels, weights)
    classes = torch.arange(num_classes, device=labels.device)
    leads = votes == votes.amax(1, keepdim=True)
    predictions = torch.where(leads, classes, num_classes - 1).amin(1)
    known = (target >= 0) & (target < num_classes)
    place = torch.where(known, target, 0).unsqueeze(1)
    own = votes.gather(1, place)
    ahead = (votes > own) | ((votes == own) & (classes < place))
    rank = torch.where(known, ahead.sum(1), num_classes)
    return Verdict(predictions, rank)
