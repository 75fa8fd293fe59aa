"""One number for a whole curve: the area under accuracy over time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_positive_int, device_of
from dynmetrics.core.metric import Axes
from dynmetrics.temporal.accuracy_curve import TemporalAccuracy


class AreaUnderAccuracy(TemporalAccuracy):
    r"""The area under accuracy(t), divided by the time it spans: how right, and how early.

    Of two networks that end at the same accuracy the one that gets there first has the larger area.
    It is the mean accuracy by the trapezoidal rule, from the first to the last timestep that has
    labels; across timesteps without any, accuracy is joined by a line.

    Args:
        top_k: one k.
        kwargs: the options of `TemporalAccuracy`, which see also for the inputs.

    Returns:
        Tensor (), in [0, 1]; (C,) with `average="none"`. With one labelled timestep its accuracy;
        NaN without any.

    Raises:
        ValueError: for options or shapes that do not fit.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import AreaUnderAccuracy
        >>> metric = AreaUnderAccuracy()
        >>> metric.update(torch.tensor([[0, 1, 1]]), torch.tensor([1]))
        >>> metric.update(torch.tensor([[0, 0, 1]]), torch.tensor([1]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    def __init__(self, *, top_k: int = 1, **kwargs: Any) -> None:
        check_positive_int("top_k", top_k)
        super().__init__(top_k=top_k, **kwargs)

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        return ("C",) if self.options.average == "none" else ()

    def compute(self) -> Tensor:  # type: ignore[override]
        """The area over everything seen."""
        return area_under_curve(super().compute()["accuracy"])


def area_under_curve(curve: Tensor) -> Tensor:
    """The area (...) under curves (..., T) over the time they span, where they are not NaN.

    Example:
        >>> import torch
        >>> area_under_curve(torch.tensor([torch.nan, 0.0, 1.0, 1.0]))
        tensor(0.7500)
    """
    if curve.ndim > 1:
        if not len(curve):
            return curve.new_zeros(curve.shape[:-1])
        return torch.stack([area_under_curve(part) for part in curve])
    time = torch.arange(len(curve), device=curve.device)[~curve.isnan()]
    values = curve[time]
    if len(time) < 2:
        return values.sum() if len(time) else curve.new_full((), torch.nan)
    area: Tensor = torch.trapezoid(values, time.to(curve.dtype)) / (time[-1] - time[0])
    return area


def area_under_accuracy(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> Tensor:
    """`AreaUnderAccuracy` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> area_under_accuracy(torch.tensor([[0, 1, 1]]), torch.tensor([1]))
        tensor(0.7500, dtype=torch.float64)
    """
    metric = AreaUnderAccuracy(sync_on_compute=False, **options).to(device_of("preds", preds))
    metric.update(preds, target, mask)
    return metric.compute()
