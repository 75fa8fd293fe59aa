"""From nearest neighbours to classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dynmetrics.representation.neighbours import decoded

WEIGHTS = ("exp", "uniform", "inverse")


@dataclass
class Verdict:
    """The predicted class (Q,) of every query, and the rank (Q,) of the right one: 0 is best."""

    predictions: Tensor
    rank: Tensor


def neighbour_weights(
    keys: Tensor, metric: str, weights: str, temperature: float, unit: Tensor | float = 1.0
) -> Tensor:
    """What every neighbour's vote counts (Q, k), in float64.

    "exp" is exp(similarity / temperature), shifted by the largest so that nothing overflows. The
    similarity of a distance is its negative. "inverse" is 1 / (distance + temperature), the
    distance of a cosine being 1 - cosine. Similarities are in units of `unit`, () or (Q, 1).
    """
    similarity, _ = decoded(keys)
    present = similarity > -torch.inf
    if weights == "uniform":
        return present.to(torch.float64)
    if weights == "inverse":
        distance = (1 - similarity if metric == "cosine" else -similarity * unit).clamp(min=0)
        return torch.where(present, 1 / (distance + temperature), 0.0)
    below = (similarity - similarity.amax(1, keepdim=True)) * unit
    return torch.where(present, (below / temperature).exp(), 0.0)


def vote(weights: Tensor, labels: Tensor, target: Tensor, num_classes: int) -> Verdict:
    """The verdict of neighbours with `weights` and `labels` (Q, k) on queries of class `target`.

    Of classes with equal votes the lower one is ahead; classes go up to `num_classes`. Only classes
    among the neighbours take memory, so that labels may be of any size.
    """
    labels, order = labels.sort(dim=1, stable=True)
    starts = torch.ones_like(labels, dtype=torch.bool)
    starts[:, 1:] = labels[:, 1:] != labels[:, :-1]
    place = starts.cumsum(1) - 1
    votes = torch.zeros_like(weights).scatter_add(1, place, weights.gather(1, order))
    classes = torch.zeros_like(labels).scatter(1, place, labels)
    leads = (votes == votes.amax(1, keepdim=True)) & (votes > 0)
    nowhere = torch.iinfo(torch.int64).max
    predictions = classes.masked_fill(~leads, nowhere).amin(1)
    known = (target >= 0) & (target < num_classes)
    wanted = target.unsqueeze(1)
    voted = votes > 0
    own = votes.masked_fill(classes != wanted, 0).amax(1, keepdim=True)
    lower = voted & (classes < wanted)
    ahead = ((votes > own) | (lower & (votes == own))).sum(1)
    # A class without a vote comes after those with one, and after lower ones without.
    ahead = torch.where(own.squeeze(1) > 0, ahead, voted.sum(1) + target - lower.sum(1))
    return Verdict(
        predictions.masked_fill(predictions == nowhere, 0),
        torch.where(known, ahead, num_classes),
    )
