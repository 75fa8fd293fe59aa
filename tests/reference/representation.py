"""Effective ranks, LiDAR and CKA from their definitions: all samples at once, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg

Array = np.ndarray[Any, Any]


def effective_rank(spectrum: Sequence[float] | Array, eps: float = 1e-7) -> float:
    total = float(np.sum(spectrum))
    if total == 0:
        return 1.0
    entropy = 0.0
    for value in spectrum:
        share = value / total + eps
        entropy -= share * np.log(share) if share > 0 else 0.0
    return float(np.exp(entropy))


def rankme(
    features: Array,
    center: bool = False,
    eps: float = 1e-7,
    spectrum: str = "singular",
    normalized: bool = False,
) -> float:
    if not len(features):
        return float("nan")
    z = np.asarray(features, dtype=np.float64)
    limit = min(len(z) - center, z.shape[1])
    if center:
        z = z - z.mean(0)
    values = np.linalg.svd(z, compute_uv=False)
    if center and values.max() <= 1e-9 * np.abs(features).max():
        values = np.zeros_like(values)
    rank = effective_rank(values**2 if spectrum == "eigen" else values, eps)
    return rank / max(limit, 1) if normalized else rank


def embedding_health(features: Array) -> dict[str, Any]:
    nan = float("nan")
    n, d = features.shape
    result = {
        "rankme": rankme(features),
        "rankme_centered": rankme(features, center=True),
        "participation_ratio": nan,
        "condition_number": nan,
        "mean_norm": float(np.mean([np.sqrt(np.sum(row**2)) for row in features])) if n else nan,
        "n": np.int64(n),
        "d": np.int64(d if n else 0),
    }
    if n > 1:
        values = np.linalg.svd(features - features.mean(0), compute_uv=False)[: min(n - 1, d)]
        result["participation_ratio"] = np.sum(values**2) ** 2 / np.sum(values**4)
        result["condition_number"] = values[0] / values[-1]
    return result


def lidar(groups: Sequence[Array], delta: float = 1e-4, eps: float = 1e-7) -> float:
    """Groups of features (Q, D); Q may differ. Generalised eigenvalues of between and within."""
    if len(groups) < 2:
        return float("nan")
    width = groups[0].shape[1]
    means = [group.mean(0) for group in groups]
    centre = np.mean(means, axis=0)
    between, within = np.zeros((width, width)), np.zeros((width, width))
    for group, mean in zip(groups, means, strict=True):
        between += np.outer(mean - centre, mean - centre)
        for row in group:
            within += np.outer(row - mean, row - mean)
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return float("nan")
    between /= len(groups) - 1
    within /= freedom
    values = scipy.linalg.eigh(between, within + delta * np.eye(width), eigvals_only=True)
    return effective_rank(np.clip(values, 0, None), eps)


def linear_cka(x: Array, y: Array, unbiased: bool = False) -> float:
    """HSIC of the linear kernels over the geometric mean of those with themselves."""
    n = len(x)
    if n < (4 if unbiased else 2):
        return float("nan")
    k, l = x @ x.T, y @ y.T  # noqa: E741
    hsic = _unbiased_hsic if unbiased else _biased_hsic
    own = hsic(k, k) * hsic(l, l)
    return hsic(k, l) / np.sqrt(own) if own > 0 else float("nan")


def _biased_hsic(k: Array, l: Array) -> float:  # noqa: E741
    centre = np.eye(len(k)) - 1 / len(k)
    return float(np.trace(centre @ k @ centre @ l))


def _unbiased_hsic(k: Array, l: Array) -> float:  # noqa: E741
    n = len(k)
    k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))  # noqa: E741
    paired = np.sum(k * l)
    apart = k.sum() * l.sum() / ((n - 1) * (n - 2))
    shared = 2 / (n - 2) * float(k.sum(0) @ l.sum(0))
    return float((paired + apart - shared) / (n * (n - 3)))
