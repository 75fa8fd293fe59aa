"""Mean vectors and scatter matrices that stream: Chan's rule for covariances.

Packed in one float64 matrix (1 + D, 1 + D): the count in the corner, the mean beside it, and the
sum of the outer products of the deviations from the mean. A large mean spoils nothing. Declared by
`add_folded(name, (BY_DATA, BY_DATA), fold_scatter)`.
"""

from __future__ import annotations

import torch
from torch import Tensor

PRODUCTS = ("float64", "float32")
_BLOCK = 192


def gram(features: Tensor) -> Tensor:
    """`features.T @ features` (D, D): on a CPU the upper half alone, and then mirrored."""
    width = features.shape[1]
    if features.device.type != "cpu" or width < 2 * _BLOCK:
        return features.T @ features
    result = features.new_empty(width, width)
    for start in range(0, width, _BLOCK):
        stop = min(start + _BLOCK, width)
        torch.mm(features[:, start:stop].T, features[:, start:], out=result[start:stop, start:])
        result[start:stop, :start] = result[:start, start:stop].T
    return result


def batch_scatter(
    features: Tensor, products: str = "float64", mask: Tensor | None = None
) -> Tensor:
    """The packed scatter (1 + D, 1 + D) of features (N, D), of those where `mask` (N,) is True.

    With float32 `products` the deviations from the mean are multiplied in float32: half the time,
    and only half the digits.
    """
    n, width = features.shape
    values = features.to(torch.float64)
    packed = values.new_zeros(1 + width, 1 + width)
    if not n:
        return packed
    if mask is None:
        mean = values.mean(0)
        deviations = values - mean
    else:
        chosen = mask.unsqueeze(1)
        values = torch.where(chosen, values, 0.0)
        mean = values.sum(0) / mask.sum().clamp(min=1)
        deviations = torch.where(chosen, values - mean, 0.0)
    if products == "float32":
        deviations = deviations.to(torch.float32)
    packed[0, 0] = n if mask is None else mask.sum()
    packed[0, 1:] = packed[1:, 0] = mean
    packed[1:, 1:] = gram(deviations)
    return packed


def fold_scatter(one: Tensor, other: Tensor) -> Tensor:
    """The packed scatter of two samples together (Chan, Golub and LeVeque, 1983)."""
    if not one.numel():
        return other
    result = one + other
    share = other[0, 0] / result[0, 0].clamp(min=1)
    step = other[0, 1:] - one[0, 1:]
    scaled = step * (one[0, 0] * share).sqrt()
    result[1:, 1:].addr_(scaled, scaled)
    result[0, 1:] = result[1:, 0] = one[0, 1:] + step * share
    return result


def scatter_parts(packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count (), mean (D,) and scatter (D, D) of a packed scatter."""
    if not packed.numel():
        return packed.new_zeros(()), packed.new_zeros(0), packed.new_zeros(0, 0)
    return packed[0, 0], packed[0, 1:], packed[1:, 1:]


def uncentred(packed: Tensor) -> Tensor:
    """The sum of the outer products of the samples themselves (D, D)."""
    n, mean, scatter = scatter_parts(packed)
    return scatter + n * torch.outer(mean, mean)
