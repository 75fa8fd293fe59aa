"""Several readings of how healthy an embedding is, from one matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.scatter import PRODUCTS, batch_scatter, fold_scatter, scatter_parts, uncentred
from dynmetrics.core.state import BY_DATA
from dynmetrics.representation.features import check_number, checked_features
from dynmetrics.representation.rankme import rank_of
from dynmetrics.representation.spectrum import gram_spectrum

_ENOUGH = 5


class EmbeddingHealth(StreamingMetric):
    """RankMe and its companions: is an embedding collapsing, and in which way?

    All from one matrix of 8 D^2 bytes and one pass over the features, for little more than the
    price of `RankMe` alone. Warns where N is below 5 D: most entries still grow with N then.

    Args:
        eps: added to every normalised singular value.
        products: "float64" or "float32", as of `RankMe`.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `features` (N, D).

    Returns:
        A dict of tensors (): `rankme`, the effective rank, from 1 to min(N, D); `rankme_centered`,
        that of the features without their mean; `participation_ratio`, (sum of eigenvalues)^2 / sum
        of their squares, of the covariance, from 1 to D, which the largest variances dominate;
        `condition_number`, the largest over the smallest singular value of the centred features,
        infinite where some direction is not used at all; `mean_norm` of the features; `n` and `d`.
        NaN without data; for features that all are equal the centred rank is 1, and the
        participation ratio and the condition number are NaN.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        Garrido et al., "RankMe", ICML 2023; Gao et al., "A theory of multineuronal dimensionality",
        2017 (participation ratio).

    Example:
        >>> import torch
        >>> from dynmetrics.representation import EmbeddingHealth
        >>> metric = EmbeddingHealth()
        >>> metric.update(torch.eye(2).repeat(4, 1))
        >>> metric.update(-torch.eye(2).repeat(4, 1))
        >>> {name: round(value.item(), 3) for name, value in metric.compute().items()}
        {'rankme': 2.0, 'rankme_centered': 2.0, 'participation_ratio': 2.0,
         'condition_number': 1.0, 'mean_norm': 1.0, 'n': 16, 'd': 2}
    """

    higher_is_better = True
    n: Tensor
    norms: Tensor
    largest: Tensor
    unit: Tensor
    scatter: Tensor

    def __init__(self, *, eps: float = 1e-7, products: str = "float64", **kwargs: Any) -> None:
        check_number("eps", eps, 0)
        check_choice("products", products, PRODUCTS)
        super().__init__(**kwargs)
        self.eps = eps
        self.products = products
        self.add_counts("n")
        self.add_sum("norms")
        self.add_max("largest")
        self.add_max("unit")
        self.add_folded("scatter", (BY_DATA, BY_DATA), fold_scatter)

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        names = ("rankme", "rankme_centered", "participation_ratio", "condition_number")
        return dict.fromkeys((*names, "mean_norm", "n", "d"), ())

    def update(self, features: Tensor) -> None:
        """Add features (N, D)."""
        features = checked_features("features", features, self.device)
        if not len(features):
            self.accumulate()
            return
        norms = features.to(self.norms.dtype).norm(dim=1)
        self.accumulate(
            n=torch.full_like(self.n, len(features)),
            norms=norms.sum(),
            largest=norms.amax(),
            unit=torch.full_like(self.unit, torch.finfo(features.dtype).eps),
            scatter=batch_scatter(features, self.products).to(self.scatter.dtype),
        )

    def compute(self) -> dict[str, Tensor]:
        """The readings of all features seen."""
        packed = self.scatter.to(torch.float64)
        n, width = int(self.n), max(len(packed) - 1, 0)
        if 0 < n < _ENOUGH * width:
            self.warn_once("n", f"{n} features of width {width}: the rank still grows with n")
        rank = min(n, width)
        nothing = torch.zeros_like(self.largest)
        whole = gram_spectrum(uncentred(packed), rank)
        centred = gram_spectrum(scatter_parts(packed)[2], rank)
        rankme = rank_of(whole, self.n, nothing, self.unit, self.eps)
        around_mean = rank_of(centred, self.n, self.largest, self.unit, self.eps)
        # Without their mean, n features span at most n - 1 directions.
        spread = centred[: max(n - 1, 1)]
        ratio, condition = spread_of(spread, self.n, self.largest, self.unit)
        return {
            "rankme": rankme,
            "rankme_centered": around_mean,
            "participation_ratio": ratio,
            "condition_number": condition,
            "mean_norm": self.norms / self.n,
            "n": self.n,
            "d": torch.full_like(self.n, width),
        }


def spread_of(values: Tensor, n: Tensor, largest: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Participation ratio and condition number of centred singular values."""
    undefined = values.new_full((), torch.nan)
    if not len(values):
        return undefined, undefined
    noise = 8 * unit * n.sqrt() * largest
    values = torch.where(values[0] <= noise, 0.0, values)
    variances = values.square()
    return variances.sum().square() / variances.square().sum(), values[0] / values[-1]
