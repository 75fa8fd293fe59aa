"""The counts behind every accuracy: what one batch adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_positive_int, describe, refuse
from dynmetrics.core.metric import StreamingMetric
from dynmetrics.temporal.averaging import ABSENT_CLASSES, AVERAGES
from dynmetrics.temporal.inputs import Classification, check_classes
from dynmetrics.temporal.ranking import TIES, label_hits
from dynmetrics.temporal.row_scan import RowStatistics

VALID, NONFINITE, OUT_OF_RANGE = -3, -2, -1
"""Rows of the counts behind those of the k."""


class Options(NamedTuple):
    """The checked options that accuracy and accuracy over time share."""

    num_classes: int | None
    top_k: tuple[int, ...]
    average: str
    absent_classes: str
    ties: str


def checked_options(
    num_classes: int | None, top_k: Any, average: str, absent_classes: str, ties: str
) -> Options:
    """Refuse options that no data could fit."""
    if num_classes is not None:
        check_positive_int("num_classes", num_classes)
    ks = tuple(top_k) if isinstance(top_k, Sequence) and not isinstance(top_k, str) else (top_k,)
    for k in ks:
        check_positive_int("top_k", k)
    if not ks or len(set(ks)) < len(ks):
        raise refuse("top_k", "one k or several different ones", describe(top_k))
    if num_classes is not None and max(ks) > num_classes:
        raise refuse("top_k", f"at most num_classes={num_classes}", describe(top_k))
    check_choice("average", average, AVERAGES)
    check_choice("absent_classes", absent_classes, ABSENT_CLASSES)
    check_choice("ties", ties, TIES)
    return Options(num_classes, ks, average, absent_classes, ties)


def label_counts(
    inputs: Classification | RowStatistics, options: Options
) -> tuple[Tensor, Tensor | None]:
    """What a batch adds: from scores or class indices, or from the statistics of their rows.

    Returns:
        Counts (K + 3, T): right for every k, valid, nonfinite, out of range.
        For averages over classes also counts (K + 1, T, C): right for every k, and labels.
    """
    labels = inputs.labels
    classes = _classes(inputs, options)
    valid = labels >= 0
    if isinstance(inputs, RowStatistics):
        hits, nonfinite = [inputs.hits(k) for k in options.top_k], inputs.nonfinite
    elif inputs.preds.is_floating_point():
        hits, nonfinite = label_hits(inputs.preds, labels, options.top_k, options.ties)
    else:
        hits, nonfinite = [(inputs.preds == labels) & valid], torch.zeros_like(valid)
    outside = labels >= classes if classes is not None else torch.zeros_like(valid)
    rows = [*hits, valid, nonfinite & valid, outside]
    counts = torch.stack(rows).sum(1)
    if options.average == "micro":
        return counts, None
    assert classes is not None
    return counts, _per_class(torch.stack([*rows[: len(hits)], valid & ~outside]), labels, classes)


def _classes(inputs: Classification | RowStatistics, options: Options) -> int | None:
    """The number of classes; of indices it is known only if told."""
    largest = max(options.top_k)
    if isinstance(inputs, RowStatistics):
        check_classes(inputs.classes, options.num_classes, largest)
        return inputs.classes
    if inputs.preds.is_floating_point():
        classes = inputs.preds.shape[-1]
        if classes == 1:
            raise refuse("preds", "two classes or more (one output: mode='multilabel')", "1 class")
        check_classes(classes, options.num_classes, largest)
        return classes
    if largest > 1:
        raise refuse("preds", f"scores, for top_k={options.top_k}", describe(inputs.preds))
    if options.num_classes is None and options.average != "micro":
        raise refuse("num_classes", f"a number for average={options.average!r} of indices", "None")
    return options.num_classes


def _per_class(marks: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Count the marks (R, B, T) by timestep and label: (R, T, C)."""
    rows, _, steps = marks.shape
    bins = labels.clamp(0, classes - 1) + classes * torch.arange(steps, device=labels.device)
    counts = marks.new_zeros((rows, steps * classes), dtype=torch.int64)
    index = bins.reshape(1, -1).expand(rows, -1)
    counts = counts.scatter_add(1, index, marks.reshape(rows, -1).to(torch.int64))
    return counts.reshape(rows, steps, classes)


def warn_out_of_range(metric: StreamingMetric, counts: Tensor) -> None:
    """Say once that labels outside the classes were met; reads the device, so in compute only."""
    outside = int(counts[OUT_OF_RANGE].sum())
    if outside:
        metric.warn_once(
            "labels", f"{outside} labels were not below the number of classes and count as wrong"
        )
