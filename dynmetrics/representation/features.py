"""Features as every metric of this domain takes them, and what a spectrum is worth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse


def checked_features(
    argument: str, value: Any, device: torch.device | None = None, axes: str = "ND"
) -> Tensor:
    """Floating features of the given axes; half precision as float32.

    Every axis but the first must be at least 1 long.
    """
    check_tensor(argument, value, device)
    shape = f"({', '.join(axes)})"
    if value.ndim != len(axes) or 0 in value.shape[1:]:
        raise refuse(argument, f"the shape {shape}", describe(value))
    if not value.is_floating_point():
        raise refuse(argument, f"floating features {shape}", describe(value))
    features: Tensor = value if value.dtype is torch.float64 else value.to(torch.float32)
    return features


def check_number(argument: str, value: Any, minimum: float, excluded: bool = False) -> None:
    """Refuse anything but a finite number from `minimum` on."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and minimum < value < float("inf"):
        return
    if not number or excluded or value != minimum:
        words = "above" if excluded else "of at least"
        raise refuse(argument, f"a finite number {words} {minimum}", describe(value))


def effective_rank(spectrum: Tensor, eps: float) -> Tensor:
    """The exponential of the entropy of the non-negative `spectrum` (K,), as shares of its sum.

    `eps` is added to every share. 1 for a spectrum of zeros, which is all collapse can come to,
    and NaN for no spectrum at all.
    """
    if not len(spectrum):
        return spectrum.new_full((), torch.nan)
    total = spectrum.sum()
    shares = spectrum / torch.where(total > 0, total, 1.0) + eps
    rank = torch.exp(-torch.special.xlogy(shares, shares).sum())
    return torch.where(total == 0, 1.0, rank)
