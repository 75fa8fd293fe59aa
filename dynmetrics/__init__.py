"""Streaming metrics for models that unfold in time.

What a training run needs besides, `MetricsCallback`, `History`, `ActivationRecorder` and
`evaluate`, is found here too and loaded when it is asked for: the callback needs Lightning.
"""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from dynmetrics.training import ActivationRecorder as ActivationRecorder
    from dynmetrics.training import History as History
    from dynmetrics.training import MetricsCallback as MetricsCallback
    from dynmetrics.training import evaluate as evaluate

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

# Not in `__all__`: an import of everything must do without Lightning.
_ON_DEMAND = ("ActivationRecorder", "History", "MetricsCallback", "evaluate")


def __getattr__(name: str) -> object:
    if name in _ON_DEMAND:
        from dynmetrics import training

        found: object = getattr(training, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
