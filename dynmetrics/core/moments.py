"""Means and variances that stream: Chan's rule, which no large mean can spoil.

Moments are packed in one float64 tensor (3, ...): count, mean, and the sum of squared deviations
from the mean. Declared by `add_folded(name, (3, ...), fold_moments)`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def batch_moments(values: Tensor, dim: int | tuple[int, ...], mask: Tensor | None = None) -> Tensor:
    """The packed moments (3, ...) of `values` over the axes `dim`.

    Values where `mask`, broadcastable to `values`, is False do not count, whatever they are.
    """
    values = values.to(torch.float64)
    ones = torch.ones_like(values) if mask is None else mask.to(torch.float64).expand_as(values)
    if mask is not None:
        values = torch.where(mask, values, 0.0)
    n = ones.sum(dim, keepdim=True)
    mean = values.sum(dim, keepdim=True) / n.clamp(min=1)
    squares = ((values - mean).square() * ones).sum(dim)
    return torch.stack([n.sum(dim), mean.sum(dim), squares])


def fold_moments(one: Tensor, other: Tensor) -> Tensor:
    """The packed moments of two samples together (Chan, Golub and LeVeque, 1983)."""
    n = one[0] + other[0]
    share = other[0] / n.clamp(min=1)
    step = other[1] - one[1]
    squares = one[2] + other[2] + step.square() * one[0] * share
    return torch.stack([n, one[1] + step * share, squares])


def moment_mean(moments: Tensor) -> Tensor:
    """The means; NaN where nothing was counted."""
    return torch.where(moments[0] > 0, moments[1], torch.nan)


def moment_variance(moments: Tensor, correction: int = 0) -> Tensor:
    """The variances, `correction=1` for the unbiased ones; NaN where too little was counted."""
    return moments[2] / (moments[0] - correction).clamp(min=0)
