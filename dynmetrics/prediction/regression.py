"""The coefficient of determination."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_flag, describe, refuse
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.moments import fold_moments
from dynmetrics.core.state import BY_DATA
from dynmetrics.prediction.inputs import check_same_shape, chunk_size, float_pair

CHUNK = 1 << 16
"""Numbers that a CPU works on at a time."""

MULTIOUTPUT = ("uniform_average", "raw_values", "variance_weighted")


class R2Score(StreamingMetric):
    r"""Coefficient of determination: 1 is perfect, 0 no better than the mean, below 0 is worse.

    The share of the target's variance that the predictions explain, for every output, averaged over
    outputs. Deviations are summed from the mean by Chan's rule, so that a large mean spoils
    nothing, and no tolerance is added, so that small targets are scored as they are.

    Args:
        multioutput: "uniform_average" over outputs, "raw_values" (K,), or "variance_weighted".
        force_finite: for a constant target report 1 if it is met exactly and 0 if not, instead of
            NaN and -inf.
        adjusted: the number of regressors to adjust for; 0 for none.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds` and `target` (N,) or (N, K).

    Returns:
        A tensor (), or (K,) for "raw_values". NaN for fewer than two samples, for an adjustment
        with no degrees of freedom left, and for data that hold NaN.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        scikit-learn `r2_score`, to 1e-12, with one difference: a constant target that is no exact
        binary number (0.1, say) counts as constant here. torch_world `r2_score`, to 1e-4, where
        the target is not constant.

    Example:
        >>> import torch
        >>> from dynmetrics.prediction import R2Score
        >>> metric = R2Score()
        >>> metric.update(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))
        >>> metric.update(torch.tensor([4.0]), torch.tensor([3.0]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    higher_is_better = True
    n: Tensor
    residuals: Tensor
    moments: Tensor
    lowest: Tensor
    highest: Tensor

    def __init__(
        self,
        *,
        multioutput: str = "uniform_average",
        force_finite: bool = True,
        adjusted: int = 0,
        **kwargs: Any,
    ) -> None:
        _check_options(multioutput, force_finite, adjusted)
        super().__init__(**kwargs)
        self.multioutput = multioutput
        self.force_finite = force_finite
        self.adjusted = adjusted
        self.add_counts("n")
        self.add_sum("residuals", (BY_DATA,))
        self.add_folded("moments", (3, BY_DATA), fold_moments)
        self.add_min("lowest", (BY_DATA,))
        self.add_max("highest", (BY_DATA,))

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        return ("K",) if self.multioutput == "raw_values" else ()

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add samples: preds and target (N,) or (N, K)."""
        preds, target = outputs_of(preds, target)
        residuals, moments, lowest, highest = batch_statistics(preds, target)
        self.accumulate(
            n=torch.full_like(self.n, len(preds)),
            residuals=residuals,
            moments=moments,
            lowest=lowest,
            highest=highest,
        )

    def compute(self) -> Tensor:
        """The score of all samples seen."""
        deviations = self.moments[2]
        extreme = torch.maximum(self.lowest.abs(), self.highest.abs())
        # Rounding is all the variance that numbers of this size and spread can show.
        rounding = self.n * (torch.finfo(torch.float64).eps * extreme).square()
        constant = (self.lowest == self.highest) | (deviations <= rounding)
        deviations = torch.where(constant, 0.0, deviations)
        scores = determination(self.residuals, deviations, self.force_finite)
        scores = torch.where(self.n < 2, torch.nan, scores)
        scores = adjusted_for(scores, self.n, self.adjusted)
        if self.multioutput == "raw_values":
            return scores
        if not len(scores):
            return scores.new_full((), torch.nan)
        if self.multioutput == "variance_weighted":
            weights = torch.where(deviations.sum() > 0, deviations, 1.0)
            return (scores * weights).sum() / weights.sum()
        return scores.mean()


def outputs_of(preds: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Samples as (N, K) in one float type; a column (N, 1) is as good as (N,)."""
    preds, target = float_pair(preds, target)
    for argument, value in (("preds", preds), ("target", target)):
        if value.ndim < 1 or 0 in value.shape[1:]:
            raise refuse(argument, "the shape (N,) or (N, K)", describe(value))
    preds, target = (value.unsqueeze(1).flatten(1) for value in (preds, target))
    check_same_shape(preds, target)
    return preds, target


def batch_statistics(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of every output: sum of squared residuals, moments (3, K), minimum and maximum, in float64.

    A few rows at a time on a CPU, so that what float64 needs stays in its cache.
    """
    n, outputs = target.shape
    residuals, deviations = target.new_zeros(2, outputs, dtype=torch.float64)
    if not n:
        nothing = torch.full_like(residuals, torch.inf)
        return residuals, target.new_zeros(3, outputs, dtype=torch.float64), nothing, -nothing
    mean = target.sum(0, dtype=torch.float64) / n
    rows = max(chunk_size(target.device, CHUNK) // outputs, 1)
    for some, true in zip(torch.split(preds, rows), torch.split(target, rows), strict=True):
        true = true.to(torch.float64)
        residuals = residuals + (true - some).square_().sum(0)
        deviations = deviations + (true - mean).square_().sum(0)
    moments = torch.stack([torch.full_like(mean, n), mean, deviations])
    return residuals, moments, *(x.to(torch.float64) for x in (target.amin(0), target.amax(0)))


def determination(residuals: Tensor, deviations: Tensor, force_finite: bool) -> Tensor:
    """1 - residuals / deviations; for a constant target what `force_finite` says."""
    scores = 1 - residuals / deviations
    if not force_finite:
        return scores
    forced = torch.where(residuals == 0, 1.0, torch.where(residuals > 0, 0.0, torch.nan))
    return torch.where(deviations == 0, forced, scores)


def adjusted_for(scores: Tensor, n: Tensor, regressors: int) -> Tensor:
    """Scores adjusted for the number of regressors."""
    if not regressors:
        return scores
    freedom = n - regressors - 1
    adjusted = 1 - (1 - scores) * (n - 1) / freedom
    return torch.where(freedom > 0, adjusted, torch.nan)


def _check_options(multioutput: Any, force_finite: Any, adjusted: Any) -> None:
    check_choice("multioutput", multioutput, MULTIOUTPUT)
    check_flag("force_finite", force_finite)
    if isinstance(adjusted, bool) or not isinstance(adjusted, int) or adjusted < 0:
        raise refuse("adjusted", "a number of regressors, 0 or more", describe(adjusted))


def r2_score(pred: Tensor, target: Tensor, **options: Any) -> float | Tensor:
    """`R2Score` of all samples at once, as a plain number.

    Args:
        pred: predictions (N,) or (N, K).
        target: what they should be.
        options: `multioutput`, `force_finite` and `adjusted`, as of `R2Score`.

    Returns:
        A float; for `multioutput="raw_values"` a tensor (K,).

    Example:
        >>> import torch
        >>> r2_score(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]))
        0.5
    """
    metric = R2Score(sync_on_compute=False, **options)
    metric = metric.to(pred.device)
    metric.update(pred, target)
    score = metric.compute()
    return score if metric.multioutput == "raw_values" else float(score)
