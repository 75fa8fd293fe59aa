"""Classification over time: scores (B, T, C) against labels (B,) or (B, T)."""

from dynmetrics.temporal.accuracy_curve import (
    TemporalAccuracy,
    temporal_accuracy,
    topk_accuracy_over_time,
)
from dynmetrics.temporal.accuracy_pooled import Accuracy, accuracy
from dynmetrics.temporal.windows import (
    first_label,
    presentation_mask,
    reaction_mask,
    shift_labels,
)

__all__ = [
    "Accuracy",
    "TemporalAccuracy",
    "accuracy",
    "first_label",
    "presentation_mask",
    "reaction_mask",
    "shift_labels",
    "temporal_accuracy",
    "topk_accuracy_over_time",
]
