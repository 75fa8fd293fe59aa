"""Moments of two sets of features together, up to what the unbiased HSIC takes of fourth order.

Packed in one matrix (4 + D, 4 + D), D = D1 + D2, that `fold_paired` adds up around the common mean,
as Chan's rule does for variances. Row 0: the count, the sums of |x|^4, |x|^2 |y|^2 and |y|^4 of the
deviations from the mean, and the mean. Rows 1 and 2: the sums of the deviations, weighted by |x|^2
and by |y|^2. Row 3: 1 for the features of x. The rest: the scatter matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor

_HEAD = 4


def batch_paired(joint: Tensor, width: int) -> Tensor:
    """The packed moments of joint features (N, D), of which the first `width` are x."""
    n, both = joint.shape
    packed = joint.new_zeros(_HEAD + both, _HEAD + both)
    mean = joint.mean(0)
    deviations = joint - mean
    x = deviations[:, :width].square().sum(1)
    y = deviations[:, width:].square().sum(1)
    packed[0, 0] = n
    packed[0, 1:_HEAD] = torch.stack([x @ x, x @ y, y @ y])
    packed[0, _HEAD:] = mean
    packed[1, _HEAD:] = x @ deviations
    packed[2, _HEAD:] = y @ deviations
    packed[3, _HEAD : _HEAD + width] = 1
    packed[_HEAD:, _HEAD:] = deviations.T @ deviations
    return packed


def fold_paired(one: Tensor, other: Tensor) -> Tensor:
    """The packed moments of two samples together."""
    if not one.numel():
        return other
    n = one[0, 0] + other[0, 0]
    step = other[0, _HEAD:] - one[0, _HEAD:]
    mean = one[0, _HEAD:] + step * (other[0, 0] / n.clamp(min=1))
    is_x = torch.maximum(one[3, _HEAD:], other[3, _HEAD:])
    result = _around(one, mean, is_x) + _around(other, mean, is_x)
    result[0, _HEAD:] = mean
    result[3, _HEAD:] = is_x
    return result


def _around(packed: Tensor, mean: Tensor, is_x: Tensor) -> Tensor:
    """The moments as deviations from another `mean`."""
    n, old, scatter, fourth = paired_parts(packed)
    by_x, by_y = packed[1, _HEAD:], packed[2, _HEAD:]
    step = old - mean
    x, y = step * is_x, step * (1 - is_x)
    spread = scatter.diagonal()
    trace_x, trace_y = spread @ is_x, spread @ (1 - is_x)
    turned_x, turned_y = scatter @ x, scatter @ y
    a, b = x @ x, y @ y
    xx = 4 * (x @ by_x) + 2 * a * trace_x + 4 * (x @ turned_x) + n * a * a
    xy = (
        2 * (y @ by_x + x @ by_y) + b * trace_x + a * trace_y + 4 * (x @ turned_y) + n * a * b
    )  # fmt: skip
    yy = 4 * (y @ by_y) + 2 * b * trace_y + 4 * (y @ turned_y) + n * b * b
    moved = packed.clone()
    moved[0, 1:_HEAD] = fourth + torch.stack([xx, xy, yy])
    moved[1, _HEAD:] = by_x + 2 * turned_x + step * (trace_x + n * a)
    moved[2, _HEAD:] = by_y + 2 * turned_y + step * (trace_y + n * b)
    moved[_HEAD:, _HEAD:] = scatter + n * torch.outer(step, step)
    return moved


def paired_parts(packed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Count (), mean (D,), scatter (D, D) and the fourth moments (3,)."""
    if not packed.numel():
        zero = packed.new_zeros(())
        return zero, packed.new_zeros(0), packed.new_zeros(0, 0), packed.new_zeros(3)
    return packed[0, 0], packed[0, _HEAD:], packed[_HEAD:, _HEAD:], packed[0, 1:_HEAD]
