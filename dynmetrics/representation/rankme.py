"""RankMe: how many directions of the embedding space are in use."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_flag
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.scatter import PRODUCTS, batch_scatter, fold_scatter, gram, scatter_parts
from dynmetrics.core.state import BY_DATA
from dynmetrics.representation.features import (
    check_number,
    checked_features,
    effective_rank,
)
from dynmetrics.representation.spectrum import (
    batch_factor,
    factor_spectrum,
    fold_factors,
    gram_spectrum,
    is_constant,
)

SPECTRA = ("singular", "eigen")
STATES = ("gram", "qr")


class RankMe(StreamingMetric):
    """Effective rank of embeddings: 1 is collapse, min(N, D) is every direction used alike.

    The exponential of the entropy of the normalised singular values of all features together. It
    needs no labels and follows downstream accuracy across the hyperparameters of one method. It
    grows with N until N is many times D: compare values of equal N only.

    No features are kept: a Gram matrix of 8 D^2 bytes is (D = 768: 4.7 MB), in float64, since a
    float32 one reads a collapsed spectrum as a rich one.

    Args:
        center: subtract the mean feature first, where a component shared by every input would read
            as rank 1. The paper does not.
        eps: added to every normalised singular value, as in the paper.
        spectrum: "singular" values, or "eigen" values of the covariance, as some packages use.
        normalized: divide by the largest rank possible, min(N, D), of centred features
            min(N - 1, D).
        state: "gram", or "qr", a triangular factor of as many bytes and about four times the time:
            it is as exact as the singular value decomposition, for any spectrum, and keeps its
            value in float32 after `set_dtype(torch.float32)`, where a device has no float64.
        products: "float64", or "float32" with sums in float64, in half the time: right to 1e-6 for
            a healthy spectrum, to 2e-3 for one that falls by a factor of 1e6.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `features` (N, D).

    Returns:
        A tensor (). NaN without data, and for features that hold NaN or infinity. 1 for features
        that are all zero, or all equal and centred.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        Garrido et al., "RankMe", ICML 2023. Equal to the singular value decomposition in float64
        (torch_world `rankme`) to 1e-6 for spectra of any condition and for exact low rank; for low
        rank up to the rounding of float32, which is a spectrum of its own below the reach of a Gram
        matrix, to 2e-5 (`state="qr"` also there to 1e-9).

    Example:
        >>> import torch
        >>> from dynmetrics.representation import RankMe
        >>> metric = RankMe()
        >>> metric.update(torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]))
        >>> metric.update(torch.tensor([[0.0, 0.0, 2.0]]))
        >>> round(metric.compute().item(), 4)
        3.0
    """

    higher_is_better = True
    n: Tensor
    largest: Tensor
    unit: Tensor
    gram: Tensor
    scatter: Tensor
    factor: Tensor

    def __init__(
        self,
        *,
        center: bool = False,
        eps: float = 1e-7,
        spectrum: str = "singular",
        normalized: bool = False,
        state: str = "gram",
        products: str = "float64",
        **kwargs: Any,
    ) -> None:
        check_flag("center", center)
        check_number("eps", eps, 0)
        check_choice("spectrum", spectrum, SPECTRA)
        check_flag("normalized", normalized)
        check_choice("state", state, STATES)
        check_choice("products", products, PRODUCTS)
        super().__init__(**kwargs)
        self.center = center
        self.eps = eps
        self.spectrum = spectrum
        self.normalized = normalized
        self.state = state
        self.products = products
        self.add_counts("n")
        if center:
            self.add_max("largest")
            self.add_max("unit")
        if state == "qr":
            self.add_folded("factor", (BY_DATA, BY_DATA), fold_factors)
        elif center:
            self.add_folded("scatter", (BY_DATA, BY_DATA), fold_scatter)
        else:
            self.add_sum("gram", (BY_DATA, BY_DATA))

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        return ()

    def update(self, features: Tensor) -> None:
        """Add features (N, D)."""
        features = checked_features("features", features, self.device)
        if not len(features):
            self.accumulate()
            return
        name, dtype = self._matrix, self.state_specs[self._matrix].dtype
        if self.state == "qr":
            matrix = batch_factor(features.to(dtype))
        elif self.center:
            matrix = batch_scatter(features, self.products).to(dtype)
        else:
            wide = self.products == "float64"
            matrix = gram(features.to(torch.float64 if wide else torch.float32)).to(dtype)
        increments = {"n": torch.full_like(self.n, len(features)), name: matrix}
        if self.center:
            increments["largest"] = features.to(self.largest.dtype).norm(dim=1).amax()
            increments["unit"] = torch.full_like(self.unit, torch.finfo(features.dtype).eps)
        self.accumulate(**increments)

    def compute(self) -> Tensor:
        """The effective rank of all features seen."""
        matrix = getattr(self, self._matrix)
        n, width = int(self.n), max(len(matrix) - (self._matrix != "gram"), 0)
        rank = min(n, width)
        if 0 < n < width:
            self.warn_once("n", f"of {n} features of width {width} the rank is at most {n}")
        if self.state == "qr":
            values = factor_spectrum(matrix, self.center, rank)
        elif self.center:
            values = gram_spectrum(scatter_parts(matrix)[2].to(torch.float64), rank)
        else:
            values = gram_spectrum(matrix.to(torch.float64), rank)
        nothing = values.new_zeros(())
        largest, unit = (self.largest, self.unit) if self.center else (nothing, nothing)
        result = rank_of(values, self.n, largest, unit, self.eps, self.spectrum)
        return result / max(min(n - self.center, width), 1) if self.normalized else result

    @property
    def _matrix(self) -> str:
        return "factor" if self.state == "qr" else "scatter" if self.center else "gram"


def rank_of(
    values: Tensor, n: Tensor, largest: Tensor, unit: Tensor, eps: float, spectrum: str = "singular"
) -> Tensor:
    """The effective rank of singular values; those of equal rows count as zeros."""
    if not len(values):
        return values.new_full((), torch.nan)
    values = torch.where(is_constant(values, n, largest, unit), 0.0, values)
    return effective_rank(values.square() if spectrum == "eigen" else values, eps)


def rankme(z: Tensor, center: bool = False, eps: float = 1e-7, **options: Any) -> float:
    """`RankMe` of all embeddings at once, as a plain number.

    Args:
        z: embeddings (N, D).
        center: subtract the mean embedding first.
        eps: added to every normalised singular value.
        options: the others of `RankMe`, but for `state` and `products`: the singular values are
            those of `z` itself in float64.

    Returns:
        A number from 1 to min(N, D); NaN without embeddings.

    Example:
        >>> import torch
        >>> round(rankme(torch.eye(5)), 4)
        5.0
    """
    metric = RankMe(center=center, eps=eps, sync_on_compute=False, **options)
    z = checked_features("z", z)
    values = z.to(torch.float64)
    if not len(z):
        return float("nan")
    largest = values.norm(dim=1).amax() if center else values.new_zeros(())
    values = values - values.mean(0) if center else values
    finite = bool(values.isfinite().all())
    spectrum = torch.linalg.svdvals(values) if finite else values.new_full((1,), torch.nan)
    unit = values.new_tensor(torch.finfo(z.dtype).eps)
    count = values.new_tensor(float(len(z)))
    rank = float(rank_of(spectrum, count, largest, unit, eps, metric.spectrum))
    return rank / max(min(len(z) - center, z.shape[1]), 1) if metric.normalized else rank
