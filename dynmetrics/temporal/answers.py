"""What the network answers in every row, and whether it is right."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.checks import refuse
from dynmetrics.core.metric import StreamingMetric
from dynmetrics.temporal.inputs import Classification, temporal_inputs
from dynmetrics.temporal.ranking import first_maximum, label_hits
from dynmetrics.temporal.row_scan import RowStatistics, rows_of


class Answers(NamedTuple):
    """Of every row, (B, T)."""

    hits: Tensor
    """bool, the answer is the label; False where there is no label, and for a NaN."""
    labels: Tensor
    """int64, negative where there is none."""
    outside: Tensor
    """() int64, labels that are not below the number of classes, if that is known."""


def answers_of(preds: Any, target: Any, mask: Any, layout: str) -> Answers:
    """Right and wrong answers from scores, class indices or row statistics."""
    if isinstance(preds, RowStatistics):
        rows = rows_of(preds, target, mask, layout=layout)
        return Answers(rows.hits(), rows.labels, (rows.labels >= rows.classes).sum())
    scores, labels = temporal_inputs(preds, target, mask, layout=layout)
    if not scores.is_floating_point():
        return Answers((scores == labels) & (labels >= 0), labels, labels.new_zeros(()))
    check_several(scores)
    [hits], _ = label_hits(scores, labels, (1,))
    return Answers(hits & (labels >= 0), labels, (labels >= scores.shape[-1]).sum())


def guesses_of(inputs: Classification) -> Tensor:
    """The guessed classes (B, T), -1 where a score of the row is NaN."""
    scores = inputs.preds
    if not scores.is_floating_point():
        return scores
    check_several(scores)
    if scores.numel() == 0:
        return torch.zeros_like(inputs.labels)
    return first_maximum(scores)


def check_several(scores: Tensor) -> None:
    """Refuse scores of a single class, which have no other answer."""
    if scores.shape[-1] == 1:
        raise refuse("preds", "two classes or more", "1 class")


def warn_of_labels(metric: StreamingMetric, outside: Tensor) -> None:
    """Say once that labels outside the classes were met; reads the device, so in compute only."""
    number = int(outside)
    if number:
        metric.warn_once(
            "labels", f"{number} labels were not below the number of classes and count as wrong"
        )
