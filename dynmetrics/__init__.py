"""Streaming metrics for models that unfold in time."""

from dynmetrics.control import (
    SPL,
    ActionSmoothness,
    GoalProgress,
    PolicyComparison,
    SoftSPL,
    StepsToSuccess,
    SuccessRate,
)
from dynmetrics.core import MetricSuite, StreamingMetric
from dynmetrics.prediction import PSNR, SSIM, ChamferDistance, R2Score, RolloutError, Surprise
from dynmetrics.representation import (
    AttentiveProbe,
    EmbeddingHealth,
    KNNAccuracy,
    LiDAR,
    LinearCKA,
    LinearProbe,
    RankMe,
)
from dynmetrics.retrieval import RecallAtK, TopKAccuracy
from dynmetrics.rsa import RDM, RSA, LayerRSA, TemporalRDM, TemporalRSA
from dynmetrics.temporal import (
    Accuracy,
    AreaUnderAccuracy,
    DecisionLatency,
    FlipRate,
    LayerResponse,
    ReactionTime,
    SegmentScores,
    TemporalAccuracy,
    TemporalCalibrationError,
    TemporalConfidence,
    TemporalConfusion,
    TemporalFScore,
    TemporalPrecision,
    TemporalRecall,
)

__version__ = "0.1.0"

__all__ = [
    "PSNR",
    "RDM",
    "RSA",
    "SPL",
    "SSIM",
    "Accuracy",
    "ActionSmoothness",
    "AreaUnderAccuracy",
    "AttentiveProbe",
    "ChamferDistance",
    "DecisionLatency",
    "EmbeddingHealth",
    "FlipRate",
    "GoalProgress",
    "KNNAccuracy",
    "LayerRSA",
    "LayerResponse",
    "LiDAR",
    "LinearCKA",
    "LinearProbe",
    "MetricSuite",
    "PolicyComparison",
    "R2Score",
    "RankMe",
    "ReactionTime",
    "RecallAtK",
    "RolloutError",
    "SegmentScores",
    "SoftSPL",
    "StepsToSuccess",
    "StreamingMetric",
    "SuccessRate",
    "Surprise",
    "TemporalAccuracy",
    "TemporalCalibrationError",
    "TemporalConfidence",
    "TemporalConfusion",
    "TemporalFScore",
    "TemporalPrecision",
    "TemporalRDM",
    "TemporalRSA",
    "TemporalRecall",
    "TopKAccuracy",
]
