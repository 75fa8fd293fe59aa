"""Ridge regression from moments alone: fit, score and choice of the penalty without a feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dynmetrics.core.scatter import scatter_parts

_ROUNDING = 64 * torch.finfo(torch.float64).eps


@dataclass
class LinearMap:
    """Predictions (x - centre) @ weights + intercept: (D,), (D, K) and (K,), in float64."""

    centre: Tensor
    weights: Tensor
    intercept: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Predictions (N, K)."""
        return (features.to(torch.float64) - self.centre) @ self.weights + self.intercept


def standard_deviations(n: Tensor, mean: Tensor, squares: Tensor) -> Tensor:
    """Of every feature, with n - 1; infinite for one that is constant, so that it drops out."""
    constant = squares <= n * (_ROUNDING * mean).square()
    return torch.where(constant, torch.inf, (squares / (n - 1)).sqrt())


def fit_ridge(
    train: Tensor, width: int, ridges: Sequence[float], penalize_bias: bool = False
) -> list[LinearMap]:
    """A map for every penalty, from the packed scatter of [features, targets].

    Minimises mean squared error + ridge * |weights|^2 over standardised features. Several penalties
    share one eigendecomposition.
    """
    n, mean, scatter = scatter_parts(train)
    centre, goal = mean[:width], mean[width:]
    sd = standard_deviations(n, centre, scatter.diagonal()[:width])
    correlation = scatter[:width, :width] / torch.outer(sd, sd)
    moments = scatter[:width, width:] / sd.unsqueeze(1)
    return [
        LinearMap(centre, weights / sd.unsqueeze(1), goal / (1 + ridge if penalize_bias else 1))
        for ridge, weights in zip(ridges, _solutions(correlation, moments, ridges, n), strict=True)
    ]


def _solutions(matrix: Tensor, moments: Tensor, ridges: Sequence[float], n: Tensor) -> list[Tensor]:
    """The weights (matrix + ridge n)^-1 moments for every penalty."""
    if len(ridges) == 1 and ridges[0] > 0:
        # A tenth of the time of an eigendecomposition, where there is one penalty to solve for.
        identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        factor, failed = torch.linalg.cholesky_ex(matrix + ridges[0] * n * identity)
        if not bool(failed):
            return [torch.cholesky_solve(moments, factor)]
    values, vectors = _eigenvectors(matrix)
    common = vectors.T @ moments
    solutions = []
    for ridge in ridges:
        shrunk = values + ridge * n
        # Without a penalty, directions that the data do not have keep the weight 0.
        usable = shrunk > len(values) * 1e-15 * values[-1]
        solutions.append(vectors @ (torch.where(usable, 1 / shrunk, 0.0).unsqueeze(1) * common))
    return solutions


def _eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    if not bool(matrix.isfinite().all()):
        return torch.full_like(matrix[0], torch.nan), torch.full_like(matrix, torch.nan)
    values, vectors = torch.linalg.eigh(matrix)
    return values.clamp(min=0), vectors


def determination(test: Tensor, linear: LinearMap) -> Tensor:
    """R2 (K,) of a map, from the packed scatter of [features, targets] that it should predict.

    A target that is constant gives 1 if it is met, else 0; fewer than two samples give NaN.
    """
    n, mean, scatter = scatter_parts(test)
    width = len(linear.centre)
    w = linear.weights
    squares = scatter.diagonal()[width:]
    offset = mean[width:] - linear.intercept - (mean[:width] - linear.centre) @ w
    explained = (w * scatter[:width, width:]).sum(0)
    predicted = (w * (scatter[:width, :width] @ w)).sum(0)
    residuals = squares - 2 * explained + predicted + n * offset.square()
    rounding = n * (_ROUNDING * mean[width:]).square()
    met = torch.where(residuals <= rounding, 1.0, torch.where(residuals > 0, 0.0, torch.nan))
    scores = 1 - residuals.clamp(min=0) / squares
    scores = torch.where(squares <= rounding, met, scores)
    return torch.where(n < 2, torch.nan, scores)
