"""Robot policies and control: episodes (N,) or (N, T)."""

from dynmetrics.control.intervals import wilson_interval
from dynmetrics.control.success import Rate, SuccessRate, success_rate

__all__ = ["Rate", "SuccessRate", "success_rate", "wilson_interval"]
