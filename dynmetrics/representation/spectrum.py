"""Singular values of features that have streamed by."""

from __future__ import annotations

import torch
from torch import Tensor

# Eigenvalues of a float64 Gram matrix below this share of the largest are its rounding errors.
_NOISE = 0.25 * torch.finfo(torch.float64).eps
# No eigenvalue is negative but by rounding, which is as large on the other side of 0.
_BOTH_SIDES = 2


def gram_spectrum(gram: Tensor, rank: int) -> Tensor:
    """The `rank` largest singular values of the features behind a Gram matrix (D, D)."""
    if not gram.numel() or not rank:
        return gram.new_zeros(0)
    if not bool(gram.isfinite().all()):
        return gram.new_full((rank,), torch.nan)
    values = torch.linalg.eigvalsh(gram).flip(0)
    noise = torch.maximum(_NOISE * values[0], -_BOTH_SIDES * values[-1])
    return torch.where(values > noise, values, 0.0)[:rank].sqrt()


def batch_factor(features: Tensor) -> Tensor:
    """The triangular factor R (1 + D, 1 + D) of [1, features]: its Gram matrix is theirs.

    The part of R behind the first row and column is a factor of the centred features.
    """
    ones = torch.ones_like(features[:, :1])
    return _square_factor(torch.cat([ones, features], 1))


def fold_factors(one: Tensor, other: Tensor) -> Tensor:
    """The factor of the samples of both factors together (TSQR)."""
    return _square_factor(torch.cat([one, other])) if one.numel() else other


def _square_factor(rows: Tensor) -> Tensor:
    """R of the QR decomposition, padded with zeros where there are few rows."""
    factor: Tensor = torch.linalg.qr(rows, mode="r").R
    missing = rows.shape[1] - factor.shape[0]
    return torch.nn.functional.pad(factor, (0, 0, 0, missing))


def factor_spectrum(factor: Tensor, center: bool, rank: int) -> Tensor:
    """The `rank` largest singular values of the features behind a factor of `batch_factor`."""
    if not factor.numel() or not rank:
        return factor.new_zeros(0, dtype=torch.float64)
    part = (factor[1:, 1:] if center else factor[:, 1:]).to(torch.float64)
    if not bool(part.isfinite().all()):
        return part.new_full((rank,), torch.nan)
    values: Tensor = torch.linalg.svdvals(part)
    return values[:rank]


def is_constant(spectrum: Tensor, n: Tensor, largest: Tensor, unit: Tensor) -> Tensor:
    """Whether the spectrum of centred features is nothing but the rounding of equal rows.

    `largest` is the largest norm of a row, and `unit` the relative rounding of the data.
    """
    return spectrum.max() <= 8 * unit * n.sqrt() * largest
