"""Whether confidence can be believed: the expected calibration error over time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_positive_int, device_of
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import ratio
from dynmetrics.core.state import GROWS
from dynmetrics.temporal.answers import warn_of_labels
from dynmetrics.temporal.inputs import LAYOUTS
from dynmetrics.temporal.row_scan import RowStatistics, rows_of

NORMS = ("l1", "l2", "max")


class TemporalCalibrationError(StreamingMetric):
    r"""The gap between confidence and accuracy at every timestep, in bins of confidence.

    A calibrated network that is 80 % sure is right in 80 % of the cases. Labelled rows are sorted
    into bins of equal width by the largest softmax probability; in every bin the mean confidence is
    compared with the share of right guesses. `ece[t]` tells whether the network is over- or
    underconfident at t, by how much; whether over or under shows beside `TemporalConfidence`.

    Args:
        n_bins: bins (k / n_bins, (k + 1) / n_bins], closed on the right.
        norm: "l1" weighs the gaps with the rows of the bins, the usual error; "l2" is the root of
            the weighed squares; "max" the largest gap.
        layout: the axes of `preds`, "BTC", "BCT" or "TBC"; never guessed.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds`, logits (B, T, C) in the axes of `layout`, `target`, integer labels
    (B, T) or (B,), negative where there is none, and `mask`, boolean (B, T) or (B,). Or the
    `row_statistics` of the batch and None. T may differ between calls and ranks.

    Returns:
        A dict: `overall` () with the bins of all timesteps pooled, `ece` (T,) and `valid` (T,), the
        labelled rows. Fractions in [0, 1], 0 for perfect calibration. NaN without a labelled row,
        and where one holds a NaN logit. A label of C or more is wrong, and `compute` warns.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        Guo et al. (2017). Equal to torchmetrics' `MulticlassCalibrationError` per timestep to 1e-6.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import TemporalCalibrationError
        >>> metric = TemporalCalibrationError(n_bins=10)
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> metric.update(logits, torch.tensor([0]))
        >>> metric.update(logits, torch.tensor([[0, 1]]))
        >>> metric.compute()["ece"]
        tensor([0.1192, 0.2311], dtype=torch.float64)
    """

    higher_is_better = False
    counts: Tensor
    confidence: Tensor
    outside: Tensor

    def __init__(
        self, *, n_bins: int = 15, norm: str = "l1", layout: str = "BTC", **kwargs: Any
    ) -> None:
        check_positive_int("n_bins", n_bins)
        check_choice("norm", norm, NORMS)
        check_choice("layout", layout, LAYOUTS)
        super().__init__(**kwargs)
        self.n_bins = n_bins
        self.norm = norm
        self.layout = layout
        self.add_counts("counts", (2, GROWS, n_bins))
        self.add_sum("confidence", (GROWS, n_bins))
        self.add_counts("outside")

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        return {"overall": (), "ece": ("T",), "valid": ("T",)}

    def update(
        self, preds: Tensor | RowStatistics, target: Tensor | None, mask: Tensor | None = None
    ) -> None:
        """Add a batch: logits (B, T, C), labels (B, T) or (B,), mask (B, T) or (B,)."""
        rows = rows_of(preds, target, mask, layout=self.layout)
        if rows.labels.numel() == 0:
            return
        counts, confidence = calibration_bins(rows, self.n_bins)
        outside = (rows.labels >= rows.classes).sum()
        self.accumulate(counts=counts, confidence=confidence, outside=outside)

    def compute(self) -> dict[str, Tensor]:
        """The errors over everything seen."""
        warn_of_labels(self, self.outside)
        counts, confidence = self.counts, self.confidence
        return {
            "overall": calibration_gap(counts.sum(1), confidence.sum(0), self.norm),
            "ece": calibration_gap(counts, confidence, self.norm),
            "valid": counts[0].sum(-1),
        }


def calibration_bins(rows: RowStatistics, n_bins: int) -> tuple[Tensor, Tensor]:
    """What a batch adds: rows and right guesses (2, T, n_bins), and sums of confidence."""
    valid = rows.labels >= 0
    confidence = rows.log_guess.exp().to(torch.float64)
    edges = torch.arange(n_bins + 1, dtype=torch.float64, device=valid.device) / n_bins
    bins = (torch.bucketize(confidence, edges) - 1).clamp(0, n_bins - 1)
    steps = valid.shape[1]
    index = (bins + n_bins * torch.arange(steps, device=valid.device)).reshape(-1)
    marks = torch.stack([valid, rows.hits()]).reshape(2, -1).to(torch.int64)
    counts = marks.new_zeros((2, steps * n_bins)).index_add(1, index, marks)
    sums = confidence.new_zeros(steps * n_bins)
    sums = sums.index_add(0, index, torch.where(valid, confidence, 0.0).reshape(-1))
    return counts.reshape(2, steps, n_bins), sums.reshape(steps, n_bins)


def calibration_gap(counts: Tensor, confidence: Tensor, norm: str) -> Tensor:
    """The error (...) from counts (2, ..., n_bins) and sums of confidence (..., n_bins)."""
    n, right = counts
    gaps = torch.where(n > 0, (ratio(right, n) - confidence / n).abs(), 0.0)
    total = n.sum(-1)
    if norm == "max":
        return torch.where(total > 0, gaps.amax(-1), torch.nan)
    shares = ratio(n, total.unsqueeze(-1))
    return (shares * gaps).sum(-1) if norm == "l1" else (shares * gaps.square()).sum(-1).sqrt()


def temporal_calibration_error(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """`TemporalCalibrationError` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> temporal_calibration_error(logits, torch.tensor([0]), norm="max")["ece"]
        tensor([0.1192, 0.7311], dtype=torch.float64)
    """
    metric = TemporalCalibrationError(sync_on_compute=False, **options).to(
        device_of("preds", preds)
    )
    metric.update(preds, target, mask)
    return metric.compute()
