"""Storage, guarding, merging and synchronisation of metric states; nothing of any domain."""

from dynmetrics.core.metric import StreamingMetric
from dynmetrics.core.state import BY_DATA, GROWS
from dynmetrics.core.suite import MetricSuite

__all__ = ["BY_DATA", "GROWS", "MetricSuite", "StreamingMetric"]
