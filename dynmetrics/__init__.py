"""Streaming metrics for models that unfold in time."""

from dynmetrics.control import SuccessRate
from dynmetrics.core import MetricSuite, StreamingMetric
from dynmetrics.prediction import PSNR, SSIM, ChamferDistance, R2Score, RolloutError, Surprise
from dynmetrics.retrieval import RecallAtK, TopKAccuracy
from dynmetrics.rsa import RDM, RSA, LayerRSA, TemporalRDM, TemporalRSA
from dynmetrics.temporal import Accuracy, TemporalAccuracy, TemporalConfidence

__version__ = "0.1.0"

__all__ = [
    "PSNR",
    "RDM",
    "RSA",
    "SSIM",
    "Accuracy",
    "ChamferDistance",
    "LayerRSA",
    "MetricSuite",
    "R2Score",
    "RecallAtK",
    "RolloutError",
    "StreamingMetric",
    "SuccessRate",
    "Surprise",
    "TemporalAccuracy",
    "TemporalConfidence",
    "TemporalRDM",
    "TemporalRSA",
    "TopKAccuracy",
]
