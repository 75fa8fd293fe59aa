"""Retrieval: rankings of candidates for queries."""

from dynmetrics.retrieval.recall import RecallAtK, recall_at_k
from dynmetrics.retrieval.topk import TopKAccuracy, topk_accuracy

__all__ = ["RecallAtK", "TopKAccuracy", "recall_at_k", "topk_accuracy"]
