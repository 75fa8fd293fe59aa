"""Pictures of results: results in, a matplotlib figure out. Needs the extra "plot"."""

from dynmetrics.plot.curves import plot_curve, plot_layer_responses, plot_survival
from dynmetrics.plot.intervals import plot_interval
from dynmetrics.plot.matrices import plot_rdm, plot_scores, plot_temporal_rsa
from dynmetrics.plot.result import plot_result
from dynmetrics.plot.training import plot_training

__all__ = [
    "plot_curve",
    "plot_interval",
    "plot_layer_responses",
    "plot_rdm",
    "plot_result",
    "plot_scores",
    "plot_survival",
    "plot_temporal_rsa",
    "plot_training",
]
