"""Multinomial logistic regression by L-BFGS, preconditioned by the features' Gram matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_MEMORY = 10
_TOLERANCE = {torch.float32: 3e-8, torch.float64: 1e-13}
_HALVINGS = 30

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]


def fit_logistic(
    features: Tensor, target: Tensor, num_classes: int, ridge: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """Weights (D, C) and intercepts (C,) that minimise mean cross-entropy + ridge * |weights|^2.

    Every class must occur. The products are in the precision of `features` (N, D), which should be
    standardised; all else is in float64.

    The Hessian is about the Gram matrix of the features times the variance of the predictions. In
    the basis in which that is the identity, L-BFGS takes a third of the steps.
    """
    basis, penalty, constant = _preconditioner(features, num_classes, ridge)
    rows = torch.arange(len(features), device=features.device)

    def placed(point: Tensor) -> tuple[Tensor, Tensor]:
        return point[:, :-1] @ basis.T, point[:, -1] * constant

    def objective(point: Tensor) -> tuple[Tensor, Tensor]:
        weights, intercepts = (part.to(features.dtype) for part in placed(point))
        # Classes come first: sums over few classes are faster that way round.
        scores = torch.addmm(intercepts.unsqueeze(1), weights, features.T)
        peak = scores.amax(0)
        right = scores[target, rows]
        shares = scores.sub_(peak).exp_()
        total = shares.sum(0)
        losses = peak + total.log() - right
        shares /= total
        shares[target, rows] -= 1
        slopes = (shares @ features).to(torch.float64) @ basis
        levels = constant * shares.sum(1, keepdim=True, dtype=torch.float64)
        gradient = torch.cat([slopes, levels], 1) / len(features)
        value = losses.to(torch.float64).mean() + (penalty * point.square()).sum() / 2
        return value, gradient + penalty * point

    start = basis.new_zeros(num_classes, len(penalty))
    found = minimise(objective, start, iterations, _TOLERANCE[features.dtype])
    weights, intercepts = placed(found)
    return weights.T, intercepts


def _preconditioner(
    features: Tensor, num_classes: int, ridge: float
) -> tuple[Tensor, Tensor, float]:
    """A basis (D, D) of the features, the penalty (D + 1,) in it, and a value for the intercept."""
    # Of predictions p the variance p (1 - p) is 1 / C at the start and 1 / 4 at the most.
    variance = min(0.5, 2 / num_classes)
    values, vectors = torch.linalg.eigh((features.T @ features).to(torch.float64) / len(features))
    curvature = variance * values.clamp(min=0) + 2 * ridge
    curvature = curvature.clamp(min=1e-10 * float(curvature.max()) + 1e-300)
    penalty = torch.cat([2 * ridge / curvature, curvature.new_zeros(1)])
    return vectors * curvature.rsqrt(), penalty, variance**-0.5


def minimise(objective: Objective, start: Tensor, iterations: int, tolerance: float) -> Tensor:
    """The minimum of a convex function by L-BFGS with backtracking (Liu and Nocedal, 1989).

    `objective` gives value and gradient. Stops where a step gains less than `tolerance` of the
    value, and after `iterations`.
    """
    point = start
    value, gradient = objective(point)
    steps: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(iterations):
        direction = _direction(gradient, steps)
        slope = (gradient * direction).sum()
        if not bool(slope < 0):
            break
        size = 1.0
        for _ in range(_HALVINGS):
            new_value, new_gradient = objective(point + size * direction)
            if bool(new_value <= value + 1e-4 * size * slope):
                break
            # The minimum of the parabola through both values and the slope.
            lowest = float(-slope * size / (2 * (new_value - value - size * slope)))
            size *= min(max(lowest, 0.1), 0.5)
        else:
            break
        move, change = size * direction, new_gradient - gradient
        curvature = (move * change).sum()
        if bool(curvature > 1e-12 * move.norm() * change.norm()):
            steps = [*steps[1 - _MEMORY :], (move, change, curvature)]
        gain = value - new_value
        point, value, gradient = point + move, new_value, new_gradient
        if bool(gain <= tolerance * value.abs()):
            break
    return point


def _direction(gradient: Tensor, steps: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Minus the inverse Hessian, as far as the last steps tell, times the gradient."""
    direction = -gradient
    shares = []
    for move, change, curvature in reversed(steps):
        share = (move * direction).sum() / curvature
        shares.append(share)
        direction = direction - share * change
    if steps:
        _, change, curvature = steps[-1]
        direction = direction * (curvature / change.square().sum())
    for (move, change, curvature), share in zip(steps, reversed(shares), strict=True):
        direction = direction + move * (share - (change * direction).sum() / curvature)
    return direction
