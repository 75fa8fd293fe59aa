"""Average ranks and what is computed from them, exact for any number of ties."""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse


def average_ranks(x: Tensor) -> Tensor:
    """Ranks from 1, ascending along the last axis; equal values share the mean of their ranks.

    Args:
        x: (..., N), real numbers of any dtype.

    Returns:
        (..., N), float64. NaN is no data: its rank is NaN, and the others are ranked without it.
        Equal to `scipy.stats.rankdata` of every row.

    Raises:
        ValueError: if `x` is no real tensor with an axis.

    Example:
        >>> import torch
        >>> average_ranks(torch.tensor([0.3, float("nan"), 0.1, 0.3]))
        tensor([2.5000,    nan, 1.0000, 2.5000], dtype=torch.float64)
    """
    check_tensor("x", x)
    if x.ndim == 0:
        raise refuse("x", "a tensor with at least one axis", describe(x))
    if x.dtype is torch.bool:
        x = x.to(torch.uint8)
    order, starts = _sorted_groups(x)
    positions = torch.arange(x.shape[-1], device=x.device)
    first = torch.where(starts, positions, 0).cummax(-1).values
    # The last of a group stands before the next start; from behind, that is a running minimum.
    stops = torch.nn.functional.pad(starts[..., 1:], (0, 1), value=True)
    last = torch.where(stops, positions, x.shape[-1]).flip(-1).cummin(-1).values.flip(-1)
    ranks = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    ranks = ranks.scatter(-1, order, (first + last).to(torch.float64) / 2 + 1)
    return ranks.masked_fill(x.isnan(), torch.nan) if x.is_floating_point() else ranks


def dense_ranks(x: Tensor) -> Tensor:
    """Ranks from 0 without gaps along the last axis, int64: equal values share one."""
    order, starts = _sorted_groups(x)
    return torch.empty_like(order).scatter(-1, order, starts.cumsum(-1) - 1)


def spearman(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's rank correlation along the last axis: Pearson's correlation of average ranks.

    Right also where sums of tied ranks exceed 32 bits, as for a categorical RDM of 1000 conditions.

    Args:
        a: (..., N), any real dtype.
        b: (..., N), broadcastable to `a`.

    Returns:
        (...), float64, from -1 to 1. NaN where either vector holds NaN or is constant, and for
        N < 2. Equal to `scipy.stats.spearmanr` to 1e-12.

    Raises:
        ValueError: if the vectors differ in length.

    Example:
        >>> import torch
        >>> spearman(torch.tensor([1, 2, 2, 3]), torch.tensor([4, 3, 2, 1]))
        tensor(-0.9487, dtype=torch.float64)
    """
    ours, theirs = average_ranks(a), average_ranks(b)
    if ours.shape[-1] != theirs.shape[-1]:
        raise refuse("b", f"{ours.shape[-1]} values as in a", describe(b))
    product = (unit(centred_ranks(ours)) * unit(centred_ranks(theirs))).sum(-1)
    # A sum over no pair at all is 0, which would look like an answer.
    return product.clamp(-1, 1) if ours.shape[-1] > 1 else torch.full_like(product, torch.nan)


def centred_ranks(ranks: Tensor) -> Tensor:
    """Average ranks less their mean, which is exact: half-integers."""
    return ranks - (ranks.shape[-1] + 1) / 2


def unit(x: Tensor) -> Tensor:
    """`x` scaled to length 1 along the last axis; NaN where it has no length."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.where(length > 0, length, torch.nan)


def centred(x: Tensor) -> Tensor:
    """`x` less its mean along the last axis; exactly 0 where nothing but rounding is left."""
    difference = x - x.mean(-1, keepdim=True)
    length = torch.linalg.vector_norm(difference, dim=-1, keepdim=True)
    largest = x.abs().amax(-1, keepdim=True) if x.shape[-1] else length
    rounding = torch.finfo(x.dtype).eps * x.shape[-1] ** 0.5 * largest
    return torch.where(length <= rounding, 0.0, difference)


def _sorted_groups(x: Tensor) -> tuple[Tensor, Tensor]:
    """The order that sorts the last axis, and where, in this order, a group of equals starts."""
    order = _ascending(x)
    values = x.gather(-1, order)
    starts = values[..., 1:] != values[..., :-1]
    return order, torch.nn.functional.pad(starts, (1, 0), value=True)[..., : x.shape[-1]]


def _ascending(x: Tensor) -> Tensor:
    """`argsort` along the last axis, NaN last."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or x.dtype is torch.bfloat16:
        return x.argsort(dim=-1)
    import numpy as np

    # NumPy's vectorised sort takes a seventh of torch's time on a CPU.
    return torch.from_numpy(np.argsort(x.detach().numpy(), axis=-1))
