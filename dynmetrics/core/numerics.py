"""Numerical pieces that several domains share."""

from __future__ import annotations

import torch
from torch import Tensor


def normal_quantile(confidence: float) -> float:
    """The z for which a standard normal lies in [-z, z] with probability `confidence`."""
    return float(torch.special.ndtri(torch.tensor(0.5 + confidence / 2, dtype=torch.float64)))


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """`numerator / denominator` in float64; 0 / 0 is NaN, which means undefined."""
    return numerator.to(torch.float64) / denominator.to(torch.float64)


def wilson_bounds(k: Tensor, n: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    """Wilson's score interval of `k` successes in `n` trials, elementwise, in float64.

    Exactly 0 at k = 0 and exactly 1 at k = n; [0, 1], which says nothing, at n = 0.
    """
    z = normal_quantile(confidence)
    k, n = k.to(torch.float64), n.to(torch.float64)
    centre = k + z * z / 2
    spread = z * torch.sqrt(k * (n - k) / n.clamp(min=1) + z * z / 4)
    low = ((centre - spread) / (n + z * z)).clamp(0, 1)
    high = ((centre + spread) / (n + z * z)).clamp(0, 1)
    return low.masked_fill(k <= 0, 0.0), high.masked_fill(k >= n, 1.0)


def histogram_median(histogram: Tensor) -> Tensor:
    """The median position, halfway between the two in the middle of an even number."""
    n = histogram.sum()
    below = histogram.cumsum(0)
    low = (below < (n + 1) // 2).sum()
    high = (below < n // 2 + 1).sum()
    return torch.where(n > 0, ratio(low + high, torch.full_like(n, 2)), torch.nan)
