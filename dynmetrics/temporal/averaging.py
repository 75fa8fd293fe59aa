"""From counts per class to one rate: micro, macro, weighted, or none."""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.numerics import ratio

AVERAGES = ("micro", "macro", "weighted", "none")
ABSENT_CLASSES = ("drop", "zero", "nan")


def average_rates(rates: Tensor, valid: Tensor, average: str, absent_classes: str) -> Tensor:
    """The macro average of `rates` (..., C), or the rates themselves for "none".

    The rate of a class without observations is NaN: it is dropped from the average, counts as zero,
    or makes it NaN. Where nothing at all was `valid` (...), the result is NaN.
    """
    if absent_classes == "zero":
        rates = torch.where(valid.unsqueeze(-1) > 0, rates.nan_to_num(nan=0.0), rates)
    if average == "none":
        return rates
    return rates.nanmean(-1) if absent_classes == "drop" else rates.mean(-1)


def class_recall(
    correct: Tensor, support: Tensor, valid: Tensor, average: str, absent_classes: str
) -> Tensor:
    """Recall averaged over classes: MATLAB's single-label accuracy.

    Args:
        correct: right answers per class (..., C).
        support: labels per class (..., C).
        valid: all labels (...), with those outside the classes; the n of weights n_i / n.
        average: "macro", "weighted" or "none".
        absent_classes: "drop", "zero" or "nan".
    """
    if average == "weighted":
        return ratio(correct.sum(-1), valid)
    return average_rates(ratio(correct, support), valid, average, absent_classes)


def report_empty(value: Tensor, valid: Tensor, empty_value: float) -> Tensor:
    """`value`, or `empty_value` if there was no valid label at all."""
    return torch.where(valid == 0, torch.full_like(value, empty_value), value)
