"""Accuracy as one number, or one for every class: MATLAB's `accuracyMetric`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_real,
    check_tensor,
    describe,
    device_of,
    refuse,
    whole_numbers,
)
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import ratio
from dynmetrics.core.state import BY_DATA
from dynmetrics.temporal.accuracy_counts import (
    VALID,
    checked_options,
    label_counts,
    warn_out_of_range,
)
from dynmetrics.temporal.averaging import average_rates, class_recall, report_empty
from dynmetrics.temporal.inputs import check_classes, pooled_inputs


class Accuracy(StreamingMetric):
    r"""Share of right answers, with MATLAB's averages, for one label or several per observation.

    Single-label: micro is TP / (TP + FN) over all labels; macro and weighted average the recall of
    the classes with w_i = 1/C and n_i/n, so macro is the balanced accuracy. Multilabel: micro is
    (TP + TN) / all; macro and weighted average the accuracies of the labels, with w_i = 1/L and
    n_i / sum n, where n_i counts the positives. Counts are pooled over batches and ranks.

    Args:
        num_classes: C or L; needed for class indices with an average over classes.
        top_k: a guess is right if the label is among the k highest scores (single-label).
        average: "micro", "macro", "weighted" or "none", which gives every class.
        mode: "single-label", or "multilabel", also for a network with one sigmoid output.
        threshold: a multilabel score is positive if strictly greater; no sigmoid is applied.
        absent_classes: classes without observations are left out of the macro average ("drop"),
            count as "zero", or make it "nan".
        ties: which of equal scores comes first: "lowest_index" as argmax, "optimistic" for the
            label, "pessimistic" against it.
        empty_value: the result if no label at all was valid.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes, single-label, `preds`, scores (B, C) or (B, T, C) or class indices (B,) or
    (B, T), `target`, integer labels (B,) or (B, T), and `mask` like `target`; multilabel, `preds`
    (B, L) or (B, T, L), `target` of that shape, 0 or 1, and `mask` of that shape or without L. A
    negative label is masked; one of C or more (multilabel: above 1) is wrong and `compute` warns.
    A NaN among the scores of an answer makes it wrong.

    Returns:
        A tensor (), or (C,) for `average="none"`; fractions in [0, 1]. NaN for a class without
        observations, and for weighted multilabel without any positive.

    Raises:
        ValueError: for options, shapes or types that do not fit, and for k > C.

    References:
        MATLAB `accuracyMetric`; equal to scikit-learn's accuracy, balanced accuracy and recall to
        1e-9 where they are defined.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import Accuracy
        >>> metric = Accuracy(num_classes=2, average="macro")
        >>> metric.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> metric.update(torch.tensor([1, 1]), torch.tensor([0, -1]))
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
    """

    higher_is_better = True
    counts: Tensor
    class_counts: Tensor

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        top_k: int = 1,
        average: str = "micro",
        mode: str = "single-label",
        threshold: float = 0.5,
        absent_classes: str = "drop",
        ties: str = "lowest_index",
        empty_value: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if not isinstance(top_k, int):
            raise refuse("top_k", "one integer (TemporalAccuracy takes several)", describe(top_k))
        options = checked_options(num_classes, top_k, average, absent_classes, ties)
        check_choice("mode", mode, ("single-label", "multilabel"))
        if mode == "multilabel" and top_k != 1:
            raise refuse("top_k", "1 in mode 'multilabel'", describe(top_k))
        check_real("empty_value", empty_value)
        check_real("threshold", threshold)
        super().__init__(**kwargs)
        self.options = options
        self.multilabel = mode == "multilabel"
        self.threshold = float(threshold)
        self.empty_value = float(empty_value)
        classes = BY_DATA if num_classes is None else num_classes
        if self.multilabel:
            self.add_counts("class_counts", (4, classes))
        else:
            self.add_counts("counts", (4,))
            if average != "micro":
                self.add_counts("class_counts", (2, classes))

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        return ("C",) if self.options.average == "none" else ()

    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Count a batch; the class says which shapes fit."""
        if self.multilabel:
            counts = multilabel_counts(preds, target, mask, self.threshold)
            check_classes(counts.shape[1], self.options.num_classes, 1)
            self.accumulate(class_counts=counts)
            return
        inputs = pooled_inputs(preds, target, mask)
        counts, per_class = label_counts(inputs, self.options)
        if not inputs.labels.numel():
            return
        if per_class is None:
            self.accumulate(counts=counts.sum(1))
        else:
            self.accumulate(counts=counts.sum(1), class_counts=per_class.sum(1))

    def compute(self) -> Tensor:
        """The accuracy over everything seen."""
        average, absent = self.options.average, self.options.absent_classes
        if self.multilabel:
            warn_out_of_range(self, self.class_counts)
            correct, valid, positives, _ = self.class_counts
            value = multilabel_accuracy(correct, valid, positives, average, absent)
            return report_empty(value, valid.sum(), self.empty_value)
        warn_out_of_range(self, self.counts)
        valid = self.counts[VALID]
        if average == "micro":
            value = ratio(self.counts[0], valid)
        else:
            correct, support = self.class_counts.unbind()
            value = class_recall(correct, support, valid, average, absent)
        return report_empty(value, valid, self.empty_value)


def multilabel_counts(
    preds: Tensor, target: Tensor, mask: Tensor | None, threshold: float
) -> Tensor:
    """What a batch adds for every label: right, valid, positive and out of range, (4, L)."""
    check_tensor("preds", preds)
    check_tensor("target", target, preds.device)
    if preds.ndim < 2 or preds.shape != target.shape:
        raise refuse("target", f"the shape {tuple(preds.shape)} of preds (B, L)", describe(target))
    truth = whole_numbers("target", target)
    valid = truth >= 0
    if mask is not None:
        check_tensor("mask", mask, preds.device)
        if mask.shape == preds.shape[:-1]:
            mask = mask.unsqueeze(-1)
        elif mask.shape != preds.shape:
            raise refuse("mask", "the shape of preds, with or without labels", describe(mask))
        if mask.dtype is not torch.bool:
            raise refuse("mask", "a boolean tensor, True where it counts", describe(mask))
        valid = valid & mask
    # A NaN is neither positive nor negative, so it is wrong whatever the truth.
    right = torch.where(truth == 1, preds > threshold, preds <= threshold) & (truth <= 1)
    rows = [right & valid, valid, (truth == 1) & valid, (truth > 1) & valid]
    return torch.stack(rows).reshape(4, -1, preds.shape[-1]).sum(1)


def multilabel_accuracy(
    correct: Tensor, valid: Tensor, positives: Tensor, average: str, absent_classes: str
) -> Tensor:
    """MATLAB's multilabel accuracy from counts (L,)."""
    if average == "micro":
        return ratio(correct.sum(), valid.sum())
    rates = ratio(correct, valid)
    if average == "weighted":
        return ratio((rates.nan_to_num() * positives).sum(), positives.sum())
    return average_rates(rates, valid.sum(), average, absent_classes)


def accuracy(preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
    """`Accuracy` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> accuracy(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]))
        tensor(0.6667, dtype=torch.float64)
    """
    metric = Accuracy(sync_on_compute=False, **options).to(device_of("preds", preds))
    metric.update(preds, target, mask)
    return metric.compute()
