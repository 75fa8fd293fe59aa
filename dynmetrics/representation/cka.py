"""Linear CKA: whether two sets of features span the same geometry."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_flag, describe, device_of, refuse
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.scatter import batch_scatter, fold_scatter, scatter_parts
from dynmetrics.core.state import BY_DATA
from dynmetrics.representation.features import checked_features
from dynmetrics.representation.paired_moments import batch_paired, fold_paired, paired_parts


class LinearCKA(StreamingMetric):
    """Similarity of two representations of the same inputs, up to rotation and scale: 0 to 1.

    The centred kernel alignment with linear kernels. It streams exactly, as if all inputs had been
    in one batch; a mean over batches, which other packages take, is another and larger number. The
    state is a matrix of 8 (D1 + D2)^2 bytes, whatever the number of inputs.

    Args:
        unbiased: estimate with U-statistics. The biased value tends to 1 for few inputs and wide
            features, whatever they are; the unbiased one does not, and may be negative.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `x` (N, D1) and `y` (N, D2), two representations of N inputs.

    Returns:
        A tensor (). NaN for fewer than 2 inputs (unbiased: 4), for features that are constant or
        not finite, and where the unbiased estimate of a variance is not positive.

    Raises:
        ValueError: for shapes that do not fit.

    References:
        Kornblith et al., "Similarity of neural network representations revisited", ICML 2019; Song
        et al., "Feature selection via dependence maximization", JMLR 2012. Equal to the textbook
        formula over kernel matrices to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.representation import LinearCKA
        >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [3.0, 1.0]])
        >>> metric = LinearCKA()
        >>> metric.update(x[:2], 5 * x[:2].flip(1))
        >>> metric.update(x[2:], 5 * x[2:].flip(1))
        >>> round(metric.compute().item(), 6)
        1.0
    """

    higher_is_better = None
    x_total: Tensor
    y_total: Tensor
    moments: Tensor
    unit: Tensor

    def __init__(self, *, unbiased: bool = False, **kwargs: Any) -> None:
        check_flag("unbiased", unbiased)
        super().__init__(**kwargs)
        self.unbiased = unbiased
        # The moments are of both together; these know where the first end, and say so of errors.
        self.add_sum("x_total", (BY_DATA,))
        self.add_sum("y_total", (BY_DATA,))
        fold = fold_paired if unbiased else fold_scatter
        self.add_folded("moments", (BY_DATA, BY_DATA), fold)
        self.add_max("unit")

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        return ()

    def update(self, x: Tensor, y: Tensor) -> None:
        """Add inputs: x (N, D1) and y (N, D2)."""
        x = checked_features("x", x, self.device)
        y = checked_features("y", y, self.device)
        if len(x) != len(y):
            raise refuse("y", f"the shape (N, D2) with N = {len(x)}", describe(y))
        if not len(x):
            self.accumulate()
            return
        unit = max(torch.finfo(value.dtype).eps for value in (x, y))
        joint = torch.cat([x.to(torch.float64), y.to(torch.float64)], 1)
        moments = batch_paired(joint, x.shape[1]) if self.unbiased else batch_scatter(joint)
        dtype = self.moments.dtype
        self.accumulate(
            x_total=x.sum(0, dtype=dtype),
            y_total=y.sum(0, dtype=dtype),
            moments=moments.to(dtype),
            unit=torch.full_like(self.unit, unit),
        )

    def compute(self) -> Tensor:
        """The alignment over all inputs seen."""
        packed = self.moments.to(torch.float64)
        width = len(self.x_total)
        if not self.unbiased:
            n, mean, scatter = scatter_parts(packed)
            fourth = packed.new_zeros(3)
        else:
            n, mean, scatter, fourth = paired_parts(packed)
        x, y = slice(0, width), slice(width, None)
        pairs = ((x, x), (x, y), (y, y))
        squares = torch.stack([scatter[a, b].square().sum() for a, b in pairs])
        traces = torch.stack([scatter[a, a].trace() for a in (x, y)])
        sizes = torch.stack([mean[a].square().sum() for a in (x, y)])
        # Variance below the rounding of the data is none.
        constant = bool((traces <= n * (8 * self.unit).square() * sizes).any())
        if constant or n < (4 if self.unbiased else 2):
            return n.new_full((), torch.nan)
        own_x, both, own_y = unbiased_hsic(squares, traces, fourth, n) if self.unbiased else squares
        positive = (own_x > 0) & (own_y > 0)
        return torch.where(positive, both / (own_x.sqrt() * own_y.sqrt()), torch.nan)


def unbiased_hsic(squares: Tensor, traces: Tensor, fourth: Tensor, n: Tensor) -> Tensor:
    """The U-statistics of HSIC for (x, x), (x, y) and (y, y), but for a common factor.

    For features around their mean the sums over kernel matrices without their diagonals come down
    to these: `squares` of the entries of the scatter matrices, their `traces`, and the `fourth`
    moments, sums of |x|^4, |x|^2 |y|^2 and |y|^4.
    """
    products = torch.stack([traces[0] ** 2, traces[0] * traces[1], traces[1] ** 2])
    return squares - fourth + products / ((n - 1) * (n - 2)) - 2 * fourth / (n - 2)


def linear_cka(x: Tensor, y: Tensor, unbiased: bool = False) -> float:
    """`LinearCKA` of all inputs at once, as a plain number.

    Args:
        x: features (N, D1).
        y: other features (N, D2) of the same inputs.
        unbiased: estimate with U-statistics.

    Returns:
        A number up to 1.

    Example:
        >>> import torch
        >>> linear_cka(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[1.0], [3.0], [7.0]]))
        1.0
    """
    metric = LinearCKA(unbiased=unbiased, sync_on_compute=False).to(device_of("x", x))
    metric.update(x, y)
    return float(metric.compute())
