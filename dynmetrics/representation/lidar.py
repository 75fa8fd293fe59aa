"""LiDAR: how many directions of the embedding space tell inputs apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_positive_int,
    check_tensor,
    describe,
    refuse,
    whole_numbers,
)
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.scatter import batch_scatter, fold_scatter, scatter_parts
from dynmetrics.core.state import BY_DATA, GROWS
from dynmetrics.representation.features import check_number, checked_features, effective_rank

DELTA_MODES = ("absolute", "relative")
_MOST_GROUPS = 1 << 20


class LiDAR(StreamingMetric):
    """Effective rank of the linear discriminants of embeddings: 1 is collapse, min(N - 1, D) best.

    N inputs with Q >= 2 views each (augmentations of an image, say) are N surrogate classes. The
    scatter between classes is whitened by that within them, so that only directions count in which
    inputs differ by more than their views do. Made for joint-embedding architectures, where it
    follows linear-probe accuracy more closely than RankMe.

    No features are kept. Groups that come whole take three matrices of D x D. Views that arrive
    apart take the sum of the features of every group besides: 8 G D bytes for G groups.

    Args:
        delta: added to the variance within classes. It is absolute, so the value depends on the
            scale of the features.
        eps: added to every normalised eigenvalue.
        delta_mode: "absolute", or "relative" to the mean variance within classes, which makes the
            value independent of scale.
        num_groups: the number of groups whose views arrive apart. Without it there are as many as
            the largest group seen, which `update` has to read from the device, and which must be
            below 2^20: a table of all groups up to it is kept, so number them without gaps.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `features` (N, Q, D), whole groups of Q >= 2 views, where Q may differ between
    batches; or `features` (N, D) with `group` (N,), integers from 0, where the views of a group may
    be in any batch and on any rank. A negative group is left out, and so is one not below
    `num_groups`, of which `compute` warns.

    Returns:
        A tensor (). NaN without data, for a single group, and where all groups that came apart have
        one view. 1 where all groups have the same mean.

    Raises:
        ValueError: for options or shapes that do not fit, such as whole groups of one view.

    References:
        Thilak et al., "LiDAR", ICLR 2024. Equal to torch_world `lidar` and to the generalised
        eigenvalues of scipy to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.representation import LiDAR
        >>> corners = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> views = torch.stack([corners * 0.9, corners * 1.1], 1)  # (N, Q, D)
        >>> metric = LiDAR()
        >>> metric.update(views[:2])
        >>> metric.update(views[2:])
        >>> round(metric.compute().item(), 4)
        2.0
    """

    higher_is_better = True
    n_groups: Tensor
    n_views: Tensor
    within: Tensor
    means: Tensor
    total: Tensor
    sums: Tensor
    sizes: Tensor
    strays: Tensor
    largest: Tensor
    unit: Tensor

    def __init__(
        self,
        *,
        delta: float = 1e-4,
        eps: float = 1e-7,
        delta_mode: str = "absolute",
        num_groups: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_number("delta", delta, 0)
        check_number("eps", eps, 0)
        check_choice("delta_mode", delta_mode, DELTA_MODES)
        if num_groups is not None:
            check_positive_int("num_groups", num_groups)
        super().__init__(**kwargs)
        self.delta = delta
        self.eps = eps
        self.delta_mode = delta_mode
        self.num_groups = num_groups
        self.add_counts("n_groups")
        self.add_counts("n_views")
        self.add_sum("within", (BY_DATA, BY_DATA))
        self.add_folded("means", (BY_DATA, BY_DATA), fold_scatter)
        self.add_folded("total", (BY_DATA, BY_DATA), fold_scatter)
        groups = num_groups or GROWS
        self.add_sum("sums", (groups, BY_DATA))
        self.add_counts("sizes", (groups,))
        self.add_counts("strays")
        # By feature, so that groups that come whole and apart must have the same width.
        self.add_max("largest", (BY_DATA,))
        self.add_max("unit")

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        return ()

    def update(self, features: Tensor, group: Tensor | None = None) -> None:
        """Add features (N, Q, D), or features (N, D) with group (N,)."""
        if group is None:
            features = checked_features("features", features, self.device, "NQD")
            if features.shape[1] < 2:
                raise refuse("features", "at least 2 views of every group", describe(features))
            self._add_whole(features)
        else:
            features = checked_features("features", features, self.device)
            check_tensor("group", group, self.device)
            if group.shape != features.shape[:1]:
                raise refuse("group", f"the shape ({len(features)},)", describe(group))
            self._add_apart(features, whole_numbers("group", group))

    def _add_whole(self, features: Tensor) -> None:
        if not len(features):
            self.accumulate()
            return
        n, views, width = features.shape
        within, means = group_scatter(features)
        self.accumulate(
            n_groups=torch.full_like(self.n_groups, n),
            n_views=torch.full_like(self.n_views, n * views),
            within=within.to(self.within.dtype),
            means=means.to(self.means.dtype),
            **self._size(features.reshape(n * views, width), features.dtype),
        )

    def _add_apart(self, features: Tensor, group: Tensor) -> None:
        if not len(features):
            self.accumulate()
            return
        groups = self.num_groups or max(int(group.max()) + 1, 0)
        if not self.num_groups and groups > _MOST_GROUPS:
            raise refuse("group", f"numbers below {_MOST_GROUPS}, or num_groups", str(groups - 1))
        counted = (group >= 0) & (group < groups)
        values = torch.where(counted.unsqueeze(1), features, 0).to(self.sums.dtype)
        place = group.clamp(0, max(groups - 1, 0))
        # One group of its own for what is left out keeps an empty table of groups possible.
        place = torch.where(counted, place, groups)
        sums = values.new_zeros(groups + 1, features.shape[1]).index_add(0, place, values)
        sizes = self.strays.new_zeros(groups + 1).index_add(0, place, counted.to(torch.int64))
        self.accumulate(
            total=batch_scatter(values, mask=counted).to(self.total.dtype),
            sums=sums[:groups],
            sizes=sizes[:groups],
            strays=(group >= groups).sum(),
            **self._size(values, features.dtype),
        )

    def _size(self, rows: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        unit = torch.full_like(self.unit, torch.finfo(dtype).eps)
        return {"largest": rows.to(self.largest.dtype).abs().amax(0), "unit": unit}

    def compute(self) -> Tensor:
        """The effective rank over all groups seen."""
        if int(self.strays):
            self.warn_once("strays", f"{int(self.strays)} views of a group above num_groups")
        within, means, views = self._joined()
        n, mean, between = scatter_parts(means)
        freedom = views - n
        if not len(mean) or n < 2 or freedom < 1:
            return n.new_full((), torch.nan)
        if n - 1 < len(mean):
            self.warn_once("n", f"of {int(n)} groups of width {len(mean)} the rank is at most n-1")
        noise = 8 * self.unit * n.sqrt() * self.largest.norm()
        delta = self.delta
        if self.delta_mode == "relative":
            delta = delta * float(within.trace() / freedom) / len(mean)
        spectrum = discriminants(between / (n - 1), within / freedom, delta, noise.square())
        return effective_rank(spectrum, self.eps)

    def _joined(self) -> tuple[Tensor, Tensor, Tensor]:
        """The scatter within groups, the packed scatter of their means, and the views."""
        within, means = self.within.to(torch.float64), self.means.to(torch.float64)
        views = self.n_views.to(torch.float64)
        seen = self.sizes > 0
        if not bool(seen.any()):
            return within, means, views
        sizes = self.sizes[seen].to(torch.float64).unsqueeze(1)
        centres = self.sums[seen].to(torch.float64) / sizes
        _, mean, total = scatter_parts(self.total.to(torch.float64))
        apart = (centres - mean) * sizes.sqrt()
        inside = total - apart.T @ apart
        packed = batch_scatter(centres)
        if not within.numel():
            return inside, packed, sizes.sum()
        return within + inside, fold_scatter(means, packed), views + sizes.sum()


def group_scatter(features: Tensor) -> tuple[Tensor, Tensor]:
    """Of groups (N, Q, D) the scatter within (D, D) and the packed scatter of the means."""
    values = features.to(torch.float64)
    means = values.mean(1)
    deviations = (values - means.unsqueeze(1)).reshape(-1, values.shape[2])
    return deviations.T @ deviations, batch_scatter(means)


def discriminants(between: Tensor, within: Tensor, delta: float, noise: Tensor) -> Tensor:
    """The eigenvalues (D,) of the covariance between groups, whitened by that within.

    All are 0 where the means differ by no more variance than `noise`, by rounding that is.
    """
    regular = within + delta * torch.eye(len(within), dtype=within.dtype, device=within.device)
    if not bool((regular.isfinite() & between.isfinite()).all()):
        return between.new_full((len(between),), torch.nan)
    if between.trace() <= noise:
        return between.new_zeros(len(between))
    values, vectors = torch.linalg.eigh(regular)
    whitening = vectors * values.rsqrt()
    whitened = whitening.T @ between @ whitening
    if not bool(whitened.isfinite().all()):
        return between.new_full((len(between),), torch.nan)
    spectrum: Tensor = torch.linalg.eigvalsh(whitened)
    return spectrum.clamp(min=0)


def lidar(z: Tensor, delta: float = 1e-4, eps: float = 1e-7, **options: Any) -> float:
    """`LiDAR` of all embeddings at once, as a plain number.

    Args:
        z: embeddings (N, Q, D): N >= 2 inputs with Q >= 2 views each.
        delta: added to the variance within classes.
        eps: added to every normalised eigenvalue.
        options: the others of `LiDAR`.

    Returns:
        A number from 1 to min(N - 1, D).

    Raises:
        ValueError: for fewer than two inputs or two views.

    Example:
        >>> import torch
        >>> corners = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> round(lidar(torch.stack([corners * 0.9, corners * 1.1], 1)), 4)
        2.0
    """
    z = checked_features("z", z, axes="NQD")
    if len(z) < 2 or z.shape[1] < 2:
        raise refuse("z", "at least 2 groups of at least 2 views", describe(z))
    metric = LiDAR(delta=delta, eps=eps, sync_on_compute=False, **options).to(z.device)
    metric.update(z)
    metric._warned.add("n")
    return float(metric.compute())
