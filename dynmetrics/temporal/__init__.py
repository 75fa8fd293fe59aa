"""Classification over time: scores (B, T, C) against labels (B,) or (B, T)."""

from dynmetrics.temporal.accuracy_curve import (
    TemporalAccuracy,
    temporal_accuracy,
    topk_accuracy_over_time,
)
from dynmetrics.temporal.accuracy_pooled import Accuracy, accuracy
from dynmetrics.temporal.area import AreaUnderAccuracy, area_under_accuracy
from dynmetrics.temporal.calibration import TemporalCalibrationError, temporal_calibration_error
from dynmetrics.temporal.class_scores import (
    TemporalFScore,
    TemporalPrecision,
    TemporalRecall,
    temporal_fscore,
    temporal_precision,
    temporal_recall,
)
from dynmetrics.temporal.confidence import (
    TemporalConfidence,
    confidence_over_time,
    confidences,
)
from dynmetrics.temporal.confusion import TemporalConfusion, temporal_confusion
from dynmetrics.temporal.exits import early_exit_curve, reaction_time_curve
from dynmetrics.temporal.flips import FlipRate, flip_rate
from dynmetrics.temporal.generalisation import temporal_generalisation
from dynmetrics.temporal.latency import DecisionLatency, decision_latency
from dynmetrics.temporal.reaction import ReactionTime, reaction_time
from dynmetrics.temporal.response import LayerResponse, layer_response
from dynmetrics.temporal.row_scan import RowStatistics, row_statistics
from dynmetrics.temporal.segments import SegmentScores, segment_scores
from dynmetrics.temporal.windows import (
    first_label,
    presentation_mask,
    reaction_mask,
    shift_labels,
)

__all__ = [
    "Accuracy",
    "AreaUnderAccuracy",
    "DecisionLatency",
    "FlipRate",
    "LayerResponse",
    "ReactionTime",
    "RowStatistics",
    "SegmentScores",
    "TemporalAccuracy",
    "TemporalCalibrationError",
    "TemporalConfidence",
    "TemporalConfusion",
    "TemporalFScore",
    "TemporalPrecision",
    "TemporalRecall",
    "accuracy",
    "area_under_accuracy",
    "confidence_over_time",
    "confidences",
    "decision_latency",
    "early_exit_curve",
    "first_label",
    "flip_rate",
    "layer_response",
    "presentation_mask",
    "reaction_mask",
    "reaction_time",
    "reaction_time_curve",
    "row_statistics",
    "segment_scores",
    "shift_labels",
    "temporal_accuracy",
    "temporal_calibration_error",
    "temporal_confusion",
    "temporal_fscore",
    "temporal_generalisation",
    "temporal_precision",
    "temporal_recall",
    "topk_accuracy_over_time",
]
