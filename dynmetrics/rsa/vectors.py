"""RDMs as matrices (K,K) and as vectors of their strict upper triangle."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse

SYMMETRY_TOLERANCE = 1e-6
"""Largest difference between the halves of an RDM, relative to its largest entry."""


def upper_triangle(rdms: Tensor) -> Tensor:
    """(..., K, K) to (..., P): the pairs i < j row by row, P = K (K - 1) / 2."""
    size = rdms.shape[-1]
    rows, columns = torch.triu_indices(size, size, 1, device=rdms.device)
    return rdms[..., rows, columns]


def square(vectors: Tensor) -> Tensor:
    """(..., P) to symmetric (..., K, K) with a diagonal of zeros."""
    size = conditions_of(vectors.shape[-1])
    rows, columns = torch.triu_indices(size, size, 1, device=vectors.device)
    matrix = vectors.new_zeros(*vectors.shape[:-1], size, size)
    matrix[..., rows, columns] = vectors
    matrix[..., columns, rows] = vectors
    return matrix


def conditions_of(pairs: int) -> int:
    """The number of conditions that have so many pairs."""
    size = (1 + math.isqrt(1 + 8 * pairs)) // 2
    if size * (size - 1) // 2 != pairs or pairs < 1:
        raise refuse("rdm", "K (K - 1) / 2 pairs for some K of at least 2", f"{pairs} pairs")
    return size


def rdm_vectors(argument: str, value: Any) -> Tensor:
    """RDMs in any form as vectors (..., P) in float64.

    A tensor whose last two axes are equal holds matrices, which have to be symmetric off their
    diagonal; the diagonal is never read. Any other holds vectors of the strict upper triangle.
    """
    value = getattr(value, "rdms", value)
    check_tensor(argument, value)
    if value.ndim == 0:
        raise refuse(argument, "RDMs (..., K, K) or their vectors (..., P)", describe(value))
    rdms: Tensor = value.to(torch.float64)
    if rdms.ndim == 1 or rdms.shape[-1] != rdms.shape[-2]:
        conditions_of(rdms.shape[-1])
        return rdms
    if rdms.shape[-1] < 2:
        raise refuse(argument, "RDMs of at least 2 conditions", describe(value))
    check_symmetry(argument, rdms)
    return upper_triangle(rdms)


def check_symmetry(argument: str, rdms: Tensor) -> None:
    """Refuse matrices whose halves differ by more than rounding; NaN equals NaN."""
    rdms = rdms.detach()
    upper, lower = upper_triangle(rdms), upper_triangle(rdms.transpose(-1, -2))
    scale = upper.abs().nan_to_num(0.0, 0.0, 0.0).max() if upper.numel() else 0.0
    same = torch.isclose(upper, lower, rtol=0.0, atol=float(scale) * SYMMETRY_TOLERANCE)
    if not bool((same | (upper.isnan() & lower.isnan())).all()):
        gap = float((upper - lower).abs().nan_to_num(torch.inf).max())
        raise refuse(argument, "symmetric RDMs", f"halves that differ by up to {gap:.3g}")
