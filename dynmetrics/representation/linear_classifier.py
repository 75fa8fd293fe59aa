"""Classes by a linear map: fitted to rows, and chosen among several penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dynmetrics.core.moments import batch_moments, fold_moments
from dynmetrics.representation.logistic import fit_logistic
from dynmetrics.representation.ridge import LinearMap, standard_deviations
from dynmetrics.representation.splits import Rows, held_out

_PIECE = 1024


@dataclass
class Classifier:
    """The class of the largest prediction; of equal ones the first. `classes` (C,) are known."""

    linear: LinearMap
    classes: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Classes (N,) of features (N, D)."""
        scores = self.linear(features)
        places = torch.arange(scores.shape[1], device=scores.device)
        is_best = scores == scores.amax(1, keepdim=True)
        first = torch.where(is_best, places, len(places) - 1).amin(1)
        return self.classes[first]

    @classmethod
    def of_all(cls, linear: LinearMap | None) -> Classifier | None:
        """One whose classes are numbered as the predictions of `linear` are."""
        if linear is None:
            return None
        return cls(linear, torch.arange(len(linear.intercept), device=linear.intercept.device))


def choose_classifier(
    rows: Rows, ridges: Sequence[float], iterations: int, holdout: float
) -> tuple[float, Classifier | None]:
    """The penalty that serves a held-out part best, and the classifier that all rows give with it.

    The part is scored by accuracy; of equals the first penalty is taken.
    """
    ridge = ridges[0]
    if not len(rows.target):
        return ridge, None
    if len(ridges) > 1:
        held = held_out(rows.features, rows.target, holdout)
        if bool(held.any()) and not bool(held.all()):
            fit, rest = rows.chosen(~held), rows.chosen(held)
            models = [fit_classifier(fit.features, fit.target, r, iterations) for r in ridges]
            hits = [int((model(rest.features) == rest.target).sum()) for model in models]
            ridge = ridges[hits.index(max(hits))]
    return ridge, fit_classifier(rows.features, rows.target, ridge, iterations)


def fit_classifier(features: Tensor, target: Tensor, ridge: float, iterations: int) -> Classifier:
    """Multinomial logistic regression on standardised features (N, D), N >= 1."""
    classes, places = torch.unique(target, return_inverse=True)
    features = features if features.dtype is torch.float64 else features.to(torch.float32)
    n, mean, squares = _moments(features)
    sd = standard_deviations(n, mean, squares)
    # Any centre will do, as the intercept is free: this one is exact in the type of the features.
    centre = mean.to(features.dtype)
    inputs = (features - centre).div_(sd.to(features.dtype))
    centre = centre.to(torch.float64)
    if len(classes) == 1:
        weights, intercept = mean.new_zeros(len(sd), 1), mean.new_zeros(1)
    else:
        weights, intercept = fit_logistic(inputs, places, len(classes), ridge, iterations)
    return Classifier(LinearMap(centre, weights / sd.unsqueeze(1), intercept), classes)


def _moments(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count (), mean (D,) and sums of squared deviations (D,), piece by piece in float64."""
    moments = features.new_zeros((3, features.shape[1]), dtype=torch.float64)
    for start in range(0, len(features), _PIECE):
        moments = fold_moments(moments, batch_moments(features[start : start + _PIECE], 0))
    return moments[0, 0], moments[1], moments[2]
