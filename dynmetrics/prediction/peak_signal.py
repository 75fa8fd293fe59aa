"""Peak signal-to-noise ratio of predicted images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_flag
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.moments import batch_moments, fold_moments, moment_mean, moment_variance
from dynmetrics.core.numerics import ratio
from dynmetrics.core.state import GROWS, Size
from dynmetrics.prediction.inputs import (
    check_positive,
    chunk_size,
    image_mask,
    image_pairs,
    over_steps,
    with_room,
)

CHUNK = 1 << 17
"""Elements that a CPU works on at a time, so that the differences never leave its cache."""


class PSNR(StreamingMetric):
    r"""Peak signal-to-noise ratio of predicted images, in dB: higher is better.

    PSNR is 10 log10(data_range^2 / MSE) of an image, and the metric the mean over images. Pooling
    the squared errors first gives another, lower number (errors of 0.5 and 0.1 are 6.5 dB per image
    and 5.2 dB pooled); papers use both, so say which.

    Args:
        data_range: the span of possible pixel values: 1 for images in [0, 1], 255 for bytes.
        reduction: "mean" over images, as torch_world and scikit-image; "pooled" over all pixels, as
            DINO-WM.
        max_db: the value of an image that is better still. Without it a perfect image has an
            infinite PSNR, and so has the mean.
        by_step: one value for every step of videos (..., T, C, H, W).
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds` and `target`, images (..., C, H, W) of any real type (integers are never
    subtracted as integers), and `mask`, boolean (...), True where an image counts.

    Returns:
        A dict: `psnr` (), `n_perfect` (), the images without any error, and `n` (), all images;
        for the mean also `finite` (), the mean over images whose PSNR is finite, and `se` (), its
        standard error. With `by_step` all are (T,). NaN without images; a NaN pixel makes the value
        NaN. In float32, differences below 1e-22 of an ordinary range count as none.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        torch_world `psnr`, to 1e-4 dB, but for its floor of 1e-12 under the error; scikit-image
        `peak_signal_noise_ratio` and torchmetrics `PeakSignalNoiseRatio` (pooled), to 1e-6 dB.

    Example:
        >>> import torch
        >>> from dynmetrics.prediction import PSNR
        >>> metric = PSNR(data_range=1.0)
        >>> metric.update(torch.full((1, 1, 2, 2), 0.1), torch.zeros(1, 1, 2, 2))
        >>> metric.update(torch.full((1, 1, 2, 2), 0.01), torch.zeros(1, 1, 2, 2))
        >>> metric.compute()["psnr"]
        tensor(30.0000, dtype=torch.float64)
    """

    higher_is_better = True
    counts: Tensor
    moments: Tensor
    squares: Tensor
    pixels: Tensor

    def __init__(
        self,
        *,
        data_range: float,
        reduction: str = "mean",
        max_db: float | None = None,
        by_step: bool = False,
        **kwargs: Any,
    ) -> None:
        check_positive("data_range", data_range)
        check_choice("reduction", reduction, ("mean", "pooled"))
        if max_db is not None:
            check_positive("max_db", max_db)
        check_flag("by_step", by_step)
        super().__init__(**kwargs)
        self.data_range = float(data_range)
        self.reduction = reduction
        self.max_db = max_db
        self.by_step = by_step
        steps: Size = GROWS if by_step else 1
        self.add_counts("counts", (2, steps))
        if reduction == "mean":
            self.add_folded("moments", (3, steps), fold_moments)
        else:
            self.add_sum("squares", (steps,))
            self.add_counts("pixels", (steps,))

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        names = ["psnr", "n_perfect", "n"] + ["finite", "se"] * (self.reduction == "mean")
        return dict.fromkeys(names, ("T",) if self.by_step else ())

    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Add images (..., C, H, W); mask (...)."""
        preds, target, leading = image_pairs(preds, target)
        counted = over_steps(image_mask(mask, leading, preds.device), self.by_step)
        errors = mean_squared_errors(*with_room(self.data_range, preds, target)).view(leading)
        errors = over_steps(errors, self.by_step)
        counts = torch.stack([(errors == 0) & counted, counted]).sum(1)
        if self.reduction == "mean":
            decibels = decibels_of(errors, self.data_range, self.max_db)
            # A perfect image has no finite value: it is counted, and kept out of the moments.
            finite = counted & (decibels != torch.inf)
            self.accumulate(counts=counts, moments=batch_moments(decibels, 0, finite))
            return
        pixels = preds.shape[1] * preds.shape[2] * preds.shape[3]
        squares = torch.where(counted, errors * pixels, 0.0).sum(0)
        self.accumulate(counts=counts, squares=squares, pixels=counts[1] * pixels)

    def compute(self) -> dict[str, Tensor]:
        """PSNR over all images seen."""
        perfect, n = self.counts.unbind()
        if self.reduction == "pooled":
            value = decibels_of(ratio(self.squares, self.pixels), self.data_range, self.max_db)
            result = {"psnr": value, "n_perfect": perfect, "n": n}
        else:
            finite = moment_mean(self.moments)
            value = finite
            if self.max_db is None:
                diverged = finite.isnan() & (self.moments[0] > 0)
                value = torch.where((perfect > 0) & ~diverged, torch.inf, finite)
            se = (moment_variance(self.moments, 1) / self.moments[0]).sqrt()
            result = {"psnr": value, "n_perfect": perfect, "n": n, "finite": finite, "se": se}
        return result if self.by_step else {name: entry[0] for name, entry in result.items()}


def mean_squared_errors(preds: Tensor, target: Tensor) -> Tensor:
    """The mean squared error of every image (N, C, H, W), in float64."""
    n, pixels = len(preds), preds.shape[1] * preds.shape[2] * preds.shape[3]
    width = preds.shape[-1]
    rows = min(max(chunk_size(preds.device, CHUNK) // width, 1), max(n * pixels // width, 1))
    planes = (images.reshape(-1, width) for images in (preds, target))
    pairs = zip(*(torch.split(plane, rows) for plane in planes), strict=True)
    # One piece of memory for all differences: fresh memory costs a CPU more than the sums do.
    differentiable = torch.is_grad_enabled() and (preds.requires_grad or target.requires_grad)
    scratch = None if differentiable else preds.new_empty(rows, width)
    norms = []
    for one, other in pairs:
        kept = None if scratch is None else scratch[: len(one)]
        # Norms of rows of pixels have too few terms for float32 to lose digits.
        norms.append(torch.linalg.vector_norm(torch.sub(one, other, out=kept), dim=1))
    return torch.cat(norms).to(torch.float64).square().view(n, pixels // width).sum(1) / pixels


def decibels_of(errors: Tensor, data_range: float, max_db: float | None = None) -> Tensor:
    """Mean squared errors as PSNR; no error at all is infinity, or `max_db`."""
    decibels = 10 * torch.log10(data_range**2 / errors)
    return decibels if max_db is None else decibels.clamp(max=max_db)


def psnr(
    pred: Tensor, target: Tensor, data_range: float = 1.0, *, max_db: float | None = None
) -> Tensor:
    """`PSNR` of every image, differentiable.

    Args:
        pred: images (..., C, H, W).
        target: the true images, of the same shape.
        data_range: the span of possible pixel values.
        max_db: the value of an image that is better still, instead of infinity.

    Returns:
        (...) in dB, in the type of the images.

    Example:
        >>> import torch
        >>> psnr(torch.full((2, 1, 4, 4), 0.1), torch.zeros(2, 1, 4, 4))
        tensor([20., 20.])
    """
    check_positive("data_range", data_range)
    preds, target, leading = image_pairs(pred, target)
    errors = mean_squared_errors(*with_room(data_range, preds, target))
    return decibels_of(errors, data_range, max_db).view(leading).to(preds.dtype)
