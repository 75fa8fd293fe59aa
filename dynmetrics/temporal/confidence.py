"""How sure the network is: softmax probabilities of the guess and of the label over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_flag,
    check_positive_int,
    device_of,
    refuse,
    several_of,
)
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.moments import fold_moments, moment_mean
from dynmetrics.core.state import GROWS
from dynmetrics.temporal.grouping import (
    class_of_sample,
    mean_and_deviation,
    moments_over_samples,
    pool_last,
)
from dynmetrics.temporal.inputs import LAYOUTS
from dynmetrics.temporal.row_scan import RowStatistics, row_statistics, rows_of

KINDS = ("guess", "label", "first_label")
INVALID = ("zero", "skip")


class TemporalConfidence(StreamingMetric):
    r"""The probability that a network gives to its guess, and to the true class, over time.

    "guess" is the largest probability of the softmax: how sure the network is of whatever it
    answers. "label" is the probability of the label of the timestep, "first_label" that of the
    first label of the sample at every timestep, also before and after the stimulus. A guess
    confidence far above the label confidence is misplaced; compare with accuracy at the same
    timestep.

    Args:
        kinds: which of "guess", "label" and "first_label" to report, in this order.
        layout: the axes of `preds`, "BTC", "BCT" or "TBC"; never guessed.
        invalid: how rows without a label from 0 to C - 1 enter the means of "label" and
            "first_label": as confidence 0 ("zero", as in DynVision), or not at all ("skip").
        num_classes: C; gives every curve per class of the first label, (C, T).
        details: adds for every kind the unbiased standard deviation over samples, `guess_std`, the
            number of rows behind the mean, `guess_n`, and with `num_classes` also `guess_no_class`
            (T,), the mean over the samples whose first label is no class.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds`, logits (B, T, C) in the axes of `layout`; `target`, integer labels
    (B, T) or (B,), negative where there is none; and `mask`, boolean (B, T) or (B,), True where a
    row counts, labelled or not. Or the `row_statistics` of the batch and None: then several metrics
    share one pass over the logits. T may differ between calls and ranks. Half precision is read as
    float32.

    Returns:
        A dict: for every kind `overall_guess` () over all timesteps, then `guess` (T,), and `valid`
        (T,), the number of rows with a label from 0 to C - 1. Probabilities in [0, 1]. NaN where no
        row counted, and where a row that counts holds a NaN logit. With `num_classes` curves and
        `valid` are (C, T), grouped by the first label of the sample; `overall_guess` has everyone.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        DynVision `calculate_confidence`: equal to its values to 1e-6, and its class table is
        `num_classes` with `details=True`.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import TemporalConfidence
        >>> metric = TemporalConfidence(kinds=("guess", "label"))
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> metric.update(logits, torch.tensor([0]))
        >>> metric.update(logits, torch.tensor([[-1, 1]]))
        >>> metric.compute()["label"]
        tensor([0.4404, 0.5000], dtype=torch.float64)
    """

    higher_is_better = None
    moments: Tensor
    labelled: Tensor

    def __init__(
        self,
        *,
        kinds: Sequence[str] = KINDS,
        layout: str = "BTC",
        invalid: str = "zero",
        num_classes: int | None = None,
        details: bool = False,
        **kwargs: Any,
    ) -> None:
        kinds = several_of("kinds", kinds, KINDS)
        check_choice("layout", layout, LAYOUTS)
        check_choice("invalid", invalid, INVALID)
        check_flag("details", details)
        if num_classes is not None:
            check_positive_int("num_classes", num_classes)
        super().__init__(**kwargs)
        self.kinds = kinds
        self.layout = layout
        self.invalid = invalid
        self.num_classes = num_classes
        self.details = details
        groups = () if num_classes is None else (num_classes + 1,)
        self.add_folded("moments", (3, len(kinds), GROWS, *groups), fold_moments)
        self.add_counts("labelled", (GROWS, *groups))

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        curve = ("T",) if self.num_classes is None else ("C", "T")
        axes: dict[str, tuple[str, ...]] = {f"overall_{kind}": () for kind in self.kinds}
        axes.update(dict.fromkeys(self.kinds, curve), valid=curve)
        for kind in self.kinds if self.details else ():
            axes.update({f"{kind}_std": curve, f"{kind}_n": curve})
            if self.num_classes is not None:
                axes[f"{kind}_no_class"] = ("T",)
        return axes

    def update(
        self, preds: Tensor | RowStatistics, target: Tensor | None, mask: Tensor | None = None
    ) -> None:
        """Add a batch: logits (B, T, C), labels (B, T) or (B,), mask (B, T) or (B,)."""
        rows = rows_of(preds, target, mask, layout=self.layout, ties=None)
        if self.num_classes not in (None, rows.classes):
            raise refuse("preds", f"num_classes={self.num_classes} classes", f"{rows.classes}")
        if rows.labels.numel() == 0:
            return
        moments, labelled = confidence_statistics(rows, self.kinds, self.invalid, self.num_classes)
        self.accumulate(moments=moments, labelled=labelled)

    def compute(self) -> dict[str, Tensor]:
        """The curves over everything seen."""
        moments, labelled = self.moments, self.labelled
        if self.num_classes is None:
            everything, table = moments, moments
        else:
            everything = pool_last(moments)
            table, labelled = moments[..., :-1].transpose(-1, -2), labelled[:, :-1].T
        overall = moment_mean(pool_last(everything))
        mean, deviation, n = mean_and_deviation(table)
        result = {f"overall_{kind}": overall[i] for i, kind in enumerate(self.kinds)}
        result.update({kind: mean[i] for i, kind in enumerate(self.kinds)}, valid=labelled)
        for i, kind in enumerate(self.kinds if self.details else ()):
            result.update({f"{kind}_std": deviation[i], f"{kind}_n": n[i]})
            if self.num_classes is not None:
                result[f"{kind}_no_class"] = moment_mean(moments[:, i, :, -1])
        return result


def confidence_rows(rows: RowStatistics, kinds: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Confidences (K, B, T), 0 where there is no label from 0 to C - 1, and where there is one."""
    first = torch.where(rows.counted, rows.first_labels, -1)
    of_kind = {
        "guess": (rows.log_guess, torch.zeros_like(first)),
        "label": (rows.log_label, rows.labels),
        "first_label": (rows.log_first, first),
    }
    logs = torch.stack([of_kind[kind][0] for kind in kinds])
    labels = torch.stack([of_kind[kind][1] for kind in kinds])
    known = (labels >= 0) & (labels < rows.classes)
    return torch.where(known, logs.exp(), 0.0), known


def confidence_statistics(
    rows: RowStatistics, kinds: Sequence[str], invalid: str, num_classes: int | None = None
) -> tuple[Tensor, Tensor]:
    """What a batch adds: moments (3, K, T) and labelled rows (T,); per group with `num_classes`."""
    values, known = confidence_rows(rows, kinds)
    mask = known & rows.counted if invalid == "skip" else rows.counted.expand_as(known)
    labelled = (rows.labels >= 0) & (rows.labels < rows.classes)
    if num_classes is None:
        return moments_over_samples(values, mask), labelled.sum(0)
    group = class_of_sample(rows.first_labels[:, 0], num_classes)
    table = labelled.new_zeros((num_classes + 1, labelled.shape[1]), dtype=torch.int64)
    table = table.index_add(0, group, labelled.to(torch.int64))
    return moments_over_samples(values, mask, group, num_classes + 1), table.T


def confidences(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, *, layout: str = "BTC"
) -> dict[str, Tensor]:
    """The confidences of every single row: `guess`, `label` and `first_label`, each (B, T).

    Always (B, T), whatever the labels; 0 where the label is negative, C or more, or masked.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> confidences(logits, torch.tensor([[0, -1]]))["label"]
        tensor([[0.8808, 0.0000]])
    """
    values, _ = confidence_rows(row_statistics(preds, target, mask, layout=layout), KINDS)
    return dict(zip(KINDS, values, strict=True))


def confidence_over_time(
    preds: Tensor | RowStatistics,
    target: Tensor | None = None,
    mask: Tensor | None = None,
    **options: Any,
) -> dict[str, Tensor]:
    """`TemporalConfidence` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> confidence_over_time(logits, torch.tensor([0]))["first_label"]
        tensor([0.8808, 0.2689], dtype=torch.float64)
    """
    metric = TemporalConfidence(sync_on_compute=False, **options)
    metric.to(device_of("preds", preds))
    metric.update(preds, target, mask)
    return metric.compute()
