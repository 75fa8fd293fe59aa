"""Classification over time: scores (B, T, C) against labels (B,) or (B, T)."""

from dynmetrics.temporal.accuracy_curve import (
    TemporalAccuracy,
    temporal_accuracy,
    topk_accuracy_over_time,
)
from dynmetrics.temporal.accuracy_pooled import Accuracy, accuracy
from dynmetrics.temporal.confidence import TemporalConfidence, confidence_over_time, confidences
from dynmetrics.temporal.row_scan import RowStatistics, row_statistics
from dynmetrics.temporal.windows import (
    first_label,
    presentation_mask,
    reaction_mask,
    shift_labels,
)

__all__ = [
    "Accuracy",
    "RowStatistics",
    "TemporalAccuracy",
    "TemporalConfidence",
    "accuracy",
    "confidence_over_time",
    "confidences",
    "first_label",
    "presentation_mask",
    "reaction_mask",
    "row_statistics",
    "shift_labels",
    "temporal_accuracy",
    "topk_accuracy_over_time",
]
