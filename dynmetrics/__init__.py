"""Streaming metrics for models that unfold in time."""

from dynmetrics.control import SuccessRate
from dynmetrics.core import MetricSuite, StreamingMetric
from dynmetrics.temporal import Accuracy, TemporalAccuracy

__version__ = "0.1.0"

__all__ = ["Accuracy", "MetricSuite", "StreamingMetric", "SuccessRate", "TemporalAccuracy"]
