"""What representations are worth: their rank, their likeness, and what can be read out of them."""

from dynmetrics.representation.attentive_probe import AttentiveProbe, attentive_probe
from dynmetrics.representation.cka import LinearCKA, linear_cka
from dynmetrics.representation.health import EmbeddingHealth
from dynmetrics.representation.knn import KNNAccuracy, knn_accuracy
from dynmetrics.representation.lidar import LiDAR, lidar
from dynmetrics.representation.linear_probe import LinearProbe, linear_probe
from dynmetrics.representation.rankme import RankMe, rankme
from dynmetrics.representation.splits import Probe

__all__ = [
    "AttentiveProbe",
    "EmbeddingHealth",
    "KNNAccuracy",
    "LiDAR",
    "LinearCKA",
    "LinearProbe",
    "Probe",
    "RankMe",
    "attentive_probe",
    "knn_accuracy",
    "lidar",
    "linear_cka",
    "linear_probe",
    "rankme",
]
