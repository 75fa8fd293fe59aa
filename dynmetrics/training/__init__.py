"""Metrics in a training run: fed, logged, recorded and shown. Metrics know nothing of it."""

from typing import TYPE_CHECKING, Any

from dynmetrics.training.evaluation import Evaluation, evaluate
from dynmetrics.training.history import History
from dynmetrics.training.recorder import ActivationRecorder

if TYPE_CHECKING:
    from dynmetrics.training.lightning import MetricsCallback

__all__ = ["ActivationRecorder", "Evaluation", "History", "MetricsCallback", "evaluate"]


def __getattr__(name: str) -> Any:
    if name == "MetricsCallback":
        # Lightning is optional and slow to import: only who asks for the callback needs it.
        from dynmetrics.core.optional import optional

        optional("lightning", "lightning")
        from dynmetrics.training.lightning import MetricsCallback

        return MetricsCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
