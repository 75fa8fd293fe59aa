"""Structural similarity of predicted images."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from dynmetrics.core.checks import check_choice, check_flag, check_positive_int, describe, refuse
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.moments import batch_moments, fold_moments, moment_mean
from dynmetrics.core.state import GROWS
from dynmetrics.prediction.inputs import (
    check_positive,
    chunk_size,
    image_mask,
    image_pairs,
    over_steps,
    with_room,
)

CHUNK = 1 << 17
"""Pixels that a CPU works on at a time, so that the maps of a plane never leave its cache."""


class Window(NamedTuple):
    """How a neighbourhood is weighed: `weights` along one axis, and what lies beyond the border."""

    weights: tuple[float, ...]
    border: str
    sample_covariance: bool
    data_range: float
    c1: float
    c2: float


class SSIM(StreamingMetric):
    r"""Structural similarity of predicted images: 1 if equal, lower if not, possibly below 0.

    The mean over an image of how alike the two are, in brightness, contrast and structure, within
    a window around every pixel; and the mean of that over images. Tools that all say SSIM differ in
    window, border, covariance and data range, by more than most models do: quote all four.

    Args:
        data_range: the span of possible pixel values: 1 for images in [0, 1], 255 for bytes.
        window: the side of the window in pixels, odd.
        sigma: the width of a Gaussian window.
        border: "valid" uses windows that lie inside the image; "reflect" and "zero" pad the image
            and use every pixel.
        kernel: the window is "gaussian" or "uniform".
        sample_covariance: divide by the window's pixels less one.
        k1: steadies the brightness term where it is dark.
        k2: steadies the contrast term where it is flat.
        by_step: one value for every step of videos (..., T, C, H, W).
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    The default is torch_world's, pytorch-msssim's and, with `gaussian_weights=True,
    use_sample_covariance=False`, scikit-image's. DINO-WM: `border="zero"`. scikit-image's default:
    `kernel="uniform", window=7, sample_covariance=True`. torchmetrics 1.9: `border="reflect"`.

    `update` takes `preds` and `target`, images (..., C, H, W), and `mask`, boolean (...), True
    where an image counts.

    Returns:
        A tensor (), or (T,) with `by_step`. NaN without images; a NaN pixel makes the value NaN.

    Raises:
        ValueError: for options or shapes that do not fit, and for images smaller than the window.

    References:
        Wang et al., IEEE TIP 2004, https://doi.org/10.1109/TIP.2003.819861. Equal to scikit-image
        in float64 to 1e-12; torch_world's float32 to 1e-5, but that no value exceeds 1.

    Example:
        >>> import torch
        >>> from dynmetrics.prediction import SSIM
        >>> metric = SSIM(data_range=1.0)
        >>> metric.update(torch.full((1, 1, 12, 12), 0.2), torch.full((1, 1, 12, 12), 0.4))
        >>> metric.update(torch.full((1, 1, 12, 12), 0.4), torch.full((1, 1, 12, 12), 0.4))
        >>> metric.compute()
        tensor(0.9000, dtype=torch.float64)
    """

    higher_is_better = True
    moments: Tensor

    def __init__(
        self,
        *,
        data_range: float,
        window: int = 11,
        sigma: float = 1.5,
        border: str = "valid",
        kernel: str = "gaussian",
        sample_covariance: bool = False,
        k1: float = 0.01,
        k2: float = 0.03,
        by_step: bool = False,
        **kwargs: Any,
    ) -> None:
        checked = window_of(
            data_range, window, sigma, border, kernel, sample_covariance, k1=k1, k2=k2
        )
        check_flag("by_step", by_step)
        super().__init__(**kwargs)
        self.window = checked
        self.by_step = by_step
        self.add_folded("moments", (3, GROWS if by_step else 1), fold_moments)

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        return ("T",) if self.by_step else ()

    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Add images (..., C, H, W); mask (...)."""
        preds, target, leading = image_pairs(preds, target)
        counted = over_steps(image_mask(mask, leading, preds.device), self.by_step)
        values = similarity(preds, target, self.window).view(leading)
        self.accumulate(moments=batch_moments(over_steps(values, self.by_step), 0, counted))

    def compute(self) -> Tensor:
        """Mean similarity over all images seen."""
        mean = moment_mean(self.moments)
        return mean if self.by_step else mean[0]


def window_of(
    data_range: float,
    window: int,
    sigma: float,
    border: str = "valid",
    kernel: str = "gaussian",
    sample_covariance: bool = False,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Window:
    """The options of `SSIM`, checked, as a Window."""
    check_positive("data_range", data_range)
    check_positive_int("window", window)
    check_positive("sigma", sigma)
    check_choice("border", border, ("valid", "reflect", "zero"))
    check_choice("kernel", kernel, ("gaussian", "uniform"))
    check_flag("sample_covariance", sample_covariance)
    check_positive("k1", k1)
    check_positive("k2", k2)
    if window % 2 == 0:
        raise refuse("window", "an odd side, which has a centre", describe(window))
    if sample_covariance and window == 1:
        raise refuse("window", "at least 3 for sample_covariance=True", describe(window))
    distances = torch.arange(window, dtype=torch.float64) - window // 2
    shape = distances.square() / (-2 * float(sigma) ** 2) if kernel == "gaussian" else 0 * distances
    weights = shape.exp() / shape.exp().sum()
    data_range = float(data_range)
    c1, c2 = (k1 * data_range) ** 2, (k2 * data_range) ** 2
    return Window(tuple(weights.tolist()), border, sample_covariance, data_range, c1, c2)


def similarity(preds: Tensor, target: Tensor, window: Window) -> Tensor:
    """The SSIM of every image (N, C, H, W), in float64."""
    size, radius = len(window.weights), len(window.weights) // 2
    least = {"valid": size, "reflect": radius + 1, "zero": 1}[window.border]
    if min(preds.shape[-2:]) < least:
        expected = f"sides of at least {least} for window={size}, border={window.border!r}"
        raise refuse("preds", expected, describe(preds))
    preds, target = with_room(window.data_range, preds, target)
    n, channels, height, width = preds.shape
    planes = [images.reshape(n * channels, height, width) for images in (preds, target)]
    if window.border != "valid":
        mode = "reflect" if window.border == "reflect" else "constant"
        planes = [pad(plane[:, None], [radius] * 4, mode=mode)[:, 0] for plane in planes]
    pixels = planes[0].shape[1] * planes[0].shape[2]
    count = max(chunk_size(preds.device, CHUNK) // pixels, 1)
    chunks = zip(*(torch.split(plane, count) for plane in planes), strict=True)
    values = torch.cat([_of_planes(one, other, window) for one, other in chunks])
    return values.view(n, channels).mean(1)


def _of_planes(x: Tensor, y: Tensor, window: Window) -> Tensor:
    """The mean similarity of every plane (N, H, W), in float64."""
    # Bright planes of low contrast would lose their digits to the squares of their brightness.
    centre_x, centre_y = x.mean((1, 2), keepdim=True), y.mean((1, 2), keepdim=True)
    x, y = x - centre_x, y - centre_y
    # Only the sum of the variances is needed, so four maps are smoothed and not five.
    maps = torch.stack([x, y, x * x + y * y, x * y])
    mean_x, mean_y, squares, products = _smoothed(_smoothed(maps, 2, window), 3, window).unbind()
    # In this order equal images are rounded equally, and score exactly 1.
    covariance = products - mean_x * mean_y
    variances = (squares - (mean_x * mean_x + mean_y * mean_y)).clamp(min=0)
    # What rounding leaves of flat windows must not be a correlation beyond 1.
    covariance = torch.minimum(torch.maximum(covariance, variances / -2), variances / 2)
    if window.sample_covariance:
        pixels = len(window.weights) ** 2
        covariance = covariance * (pixels / (pixels - 1))
        variances = variances * (pixels / (pixels - 1))
    mean_x, mean_y = mean_x + centre_x, mean_y + centre_y
    alike = (2 * mean_x * mean_y + window.c1) * (2 * covariance + window.c2)
    most = (mean_x * mean_x + mean_y * mean_y + window.c1) * (variances + window.c2)
    return (alike / most).clamp(-1, 1).mean((1, 2)).to(torch.float64)


def _smoothed(maps: Tensor, axis: int, window: Window) -> Tensor:
    """Weighted sums along an axis, where the window fits: no product that a device may round."""
    weights = window.weights
    length = maps.shape[axis] - len(weights) + 1
    total = maps.narrow(axis, 0, length) * weights[0]
    for offset in range(1, len(weights)):
        total.add_(maps.narrow(axis, offset, length), alpha=weights[offset])
    return total


def ssim(
    pred: Tensor,
    target: Tensor,
    data_range: float = 1.0,
    window: int = 11,
    sigma: float = 1.5,
    **options: Any,
) -> Tensor:
    """`SSIM` of every image, differentiable.

    Args:
        pred: images (..., C, H, W).
        target: the true images, of the same shape.
        data_range: the span of possible pixel values.
        window: the side of the window in pixels, odd.
        sigma: the width of the Gaussian window.
        options: `border`, `kernel`, `sample_covariance`, `k1` and `k2`, as of `SSIM`.

    Returns:
        (...), in the type of the images.

    Example:
        >>> import torch
        >>> image = torch.rand(1, 3, 16, 16)
        >>> ssim(image, image)
        tensor([1.])
    """
    checked = window_of(data_range, window, sigma, **options)
    preds, target, leading = image_pairs(pred, target)
    return similarity(preds, target, checked).view(leading).to(preds.dtype)
