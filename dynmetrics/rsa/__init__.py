"""Representational similarity: activations (B, ...) of K conditions, against brains."""

from dynmetrics.core.ranks import average_ranks, spearman
from dynmetrics.rsa.brain_data import BrainRDMs, to_rsatoolbox
from dynmetrics.rsa.brain_files import load_brain_rdms, save_submission
from dynmetrics.rsa.ceilings import noise_ceiling
from dynmetrics.rsa.comparison import compare_rdms
from dynmetrics.rsa.dissimilarity import rdm
from dynmetrics.rsa.layer_table import LayerRSA
from dynmetrics.rsa.rdm_metrics import RDM, TemporalRDM
from dynmetrics.rsa.recipes import algonauts_score
from dynmetrics.rsa.score import RSA
from dynmetrics.rsa.temporal_score import TemporalRSA

__all__ = [
    "RDM",
    "RSA",
    "BrainRDMs",
    "LayerRSA",
    "TemporalRDM",
    "TemporalRSA",
    "algonauts_score",
    "average_ranks",
    "compare_rdms",
    "load_brain_rdms",
    "noise_ceiling",
    "rdm",
    "save_submission",
    "spearman",
    "to_rsatoolbox",
]
