"""Quality of predictions by the definitions, in float64 and one number at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf, isnan, log10, nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference.success import wilson_interval

Array = NDArray[np.float64]


def mean_of(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else nan


def standard_error(values: Sequence[float]) -> float:
    if len(values) < 2:
        return nan
    mean = mean_of(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return sqrt(variance / len(values))


# ---------------------------------------------------------------------------- images


def squared_error(pred: Any, target: Any) -> float:
    difference = np.asarray(pred, dtype=np.float64) - np.asarray(target, dtype=np.float64)
    return float((difference**2).sum())


def decibels(error: float, data_range: float, max_db: float | None = None) -> float:
    value = inf if error == 0 else 10 * log10(data_range**2 / error)
    return value if max_db is None else min(value, max_db)


def psnr(
    images: Sequence[tuple[Any, Any]],
    data_range: float,
    reduction: str = "mean",
    max_db: float | None = None,
) -> dict[str, Any]:
    """PSNR of pairs of images."""
    errors = [squared_error(pred, target) for pred, target in images]
    sizes = [np.asarray(pred).size for pred, _ in images]
    counts = {"n_perfect": sum(error == 0 for error in errors), "n": len(images)}
    if reduction == "pooled":
        pooled = sum(errors) / sum(sizes) if sizes else nan
        return {"psnr": decibels(pooled, data_range, max_db), **counts}
    values = [
        decibels(error / size, data_range, max_db)
        for error, size in zip(errors, sizes, strict=True)
    ]
    finite = [value for value in values if value != inf]
    return {
        "psnr": mean_of(values),
        **counts,
        "finite": mean_of(finite),
        "se": standard_error(finite),
    }


def window_weights(window: int, sigma: float, kernel: str) -> Array:
    """The weights of a window around its centre, which sum to 1."""
    weights = np.empty((window, window))
    for i in range(window):
        for j in range(window):
            square = (i - window // 2) ** 2 + (j - window // 2) ** 2
            weights[i, j] = np.exp(-square / (2 * sigma**2)) if kernel == "gaussian" else 1.0
    return np.asarray(weights / weights.sum())


def ssim(
    pred: Any,
    target: Any,
    data_range: float = 1.0,
    window: int = 11,
    sigma: float = 1.5,
    border: str = "valid",
    kernel: str = "gaussian",
    sample_covariance: bool = False,
    k1: float = 0.01,
    k2: float = 0.03,
) -> float:
    """SSIM of one image (C, H, W): a window at a time, with moments about the window's mean."""
    weights = window_weights(window, sigma, kernel)
    c1, c2 = (k1 * data_range) ** 2, (k2 * data_range) ** 2
    scale = window**2 / (window**2 - 1) if sample_covariance else 1.0
    margin = ((0, 0), (window // 2, window // 2), (window // 2, window // 2))
    x, y = np.asarray(pred, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if border == "reflect":
        x, y = np.pad(x, margin, mode="reflect"), np.pad(y, margin, mode="reflect")
    elif border == "zero":
        x, y = np.pad(x, margin), np.pad(y, margin)
    values = []
    channels, height, width = x.shape
    for c in range(channels):
        for i in range(height - window + 1):
            for j in range(width - window + 1):
                a = x[c, i : i + window, j : j + window]
                b = y[c, i : i + window, j : j + window]
                mean_a, mean_b = (weights * a).sum(), (weights * b).sum()
                var_a = scale * (weights * (a - mean_a) ** 2).sum()
                var_b = scale * (weights * (b - mean_b) ** 2).sum()
                cov = scale * (weights * (a - mean_a) * (b - mean_b)).sum()
                alike = (2 * mean_a * mean_b + c1) * (2 * cov + c2)
                values.append(alike / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)))
    return float(np.mean(values))


# ---------------------------------------------------------------------------- point sets


def one_way(x: Array, y: Array, squared: bool, point_reduction: str) -> float:
    nearest = []
    for point in x:
        square = min(sum((a - b) ** 2 for a, b in zip(point, other, strict=True)) for other in y)
        nearest.append(square if squared else sqrt(square))
    if point_reduction == "max":
        return max(nearest)
    return sum(nearest) if point_reduction == "sum" else mean_of(nearest)


def chamfer_distance(
    x: Any, y: Any, squared: bool = True, point_reduction: str = "mean", sides: str = "sum"
) -> float:
    """The distance of two point sets (N, D) and (M, D)."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if not len(x) or not len(y):
        return nan
    there = one_way(x, y, squared, point_reduction)
    back = one_way(y, x, squared, point_reduction)
    return {
        "sum": there + back,
        "mean": (there + back) / 2,
        "max": max(there, back),
        "x_to_y": there,
        "y_to_x": back,
    }[sides]


def chamfer_of_items(items: Sequence[tuple[Any, Any]], **options: Any) -> dict[str, Any]:
    """The mean over items, those with an empty side left out and counted."""
    values = [chamfer_distance(x, y, **options) for x, y in items if len(x) and len(y)]
    return {
        "chamfer": mean_of(values),
        "n": len(values),
        "n_empty": len(items) - len(values),
        "se": standard_error(values),
    }


# ---------------------------------------------------------------------------- regression


def r2_score(
    preds: Any,
    target: Any,
    multioutput: str = "uniform_average",
    force_finite: bool = True,
    adjusted: int = 0,
) -> Any:
    """The coefficient of determination of (N,) or (N, K)."""
    preds, target = np.asarray(preds, dtype=np.float64), np.asarray(target, dtype=np.float64)
    n = len(target)
    if target.ndim == 1:
        preds, target = preds[:, None], target[:, None]
    scores, weights = [], []
    for k in range(target.shape[1]):
        residual = sum((target[i, k] - preds[i, k]) ** 2 for i in range(n))
        constant = all(target[i, k] == target[0, k] for i in range(n))
        mean = sum(target[:, k]) / n if n else nan
        total = 0.0 if constant else sum((target[i, k] - mean) ** 2 for i in range(n))
        if n < 2:
            score = nan
        elif total > 0:
            score = 1 - residual / total
        elif force_finite:
            score = 1.0 if residual == 0 else 0.0
        else:
            score = nan if residual == 0 else -inf
        if adjusted:
            freedom = n - adjusted - 1
            score = 1 - (1 - score) * (n - 1) / freedom if freedom > 0 else nan
        scores.append(score)
        weights.append(total)
    if multioutput == "raw_values":
        return np.array(scores)
    if multioutput == "variance_weighted" and sum(weights) > 0:
        return sum(s * w for s, w in zip(scores, weights, strict=True)) / sum(weights)
    return mean_of(scores)


# ---------------------------------------------------------------------------- rollouts


def step_error(pred: Any, target: Any, p: float, distance: str) -> float:
    """The error of one episode at one step: frames of any shape."""
    pred, target = np.asarray(pred, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if distance == "lp":
        return mean_of([abs(a - b) ** p for a, b in zip(pred.ravel(), target.ravel(), strict=True)])
    errors = []
    for a, b in zip(
        pred.reshape(-1, pred.shape[-1]), target.reshape(-1, pred.shape[-1]), strict=True
    ):
        norms = sqrt((a**2).sum()) * sqrt((b**2).sum())
        errors.append(1 - (a * b).sum() / norms if norms else 1.0)
    return mean_of(errors)


def rollout_error(
    episodes: Sequence[dict[str, Any]],
    p: float = 1,
    root: bool = False,
    normalize: str = "none",
    distance: str = "lp",
    threshold: float | None = None,
) -> dict[str, Any]:
    """The curves over episodes, each with `preds` (T, ...), `target`, `mask` (T,), `initial`."""
    steps = max((len(episode["preds"]) for episode in episodes), default=0)
    power = 1 / p if root else 1.0
    error, se, n, area_parts = [], [], [], []
    all_errors: list[float] = []
    all_baselines: list[float] = []
    for t in range(steps):
        errors, baselines = [], []
        for episode in episodes:
            mask = episode.get("mask")
            if t >= len(episode["preds"]) or (mask is not None and not mask[t]):
                continue
            target = episode["target"]
            first = episode.get("initial")
            first = target[0] if first is None else first
            errors.append(step_error(episode["preds"][t], target[t], p, distance))
            baselines.append(step_error(first, target[t], p, distance))
        all_errors += errors
        all_baselines += baselines
        if normalize == "none":
            value, spread = mean_of(errors), standard_error(errors)
        else:
            value = mean_of(errors) / mean_of(baselines) if sum(baselines) else nan
            rest = [e - value * b for e, b in zip(errors, baselines, strict=True)]
            spread = standard_error(rest) / mean_of(baselines) if sum(baselines) else nan
        error.append(value**power)
        se.append(spread * power * value ** (power - 1) if spread else spread)
        n.append(len(errors))
    for one, other in pairwise(error):
        if not isnan(one) and not isnan(other):
            area_parts.append((one + other) / 2)
    below = sum(all_baselines) if normalize == "persistence" else len(all_errors)
    result = {
        "overall": (sum(all_errors) / below) ** power if below else nan,
        "error": np.array(error, dtype=np.float64),
        "se": np.array(se, dtype=np.float64),
        "n": np.array(n, dtype=np.int64),
        "area": sum(area_parts) if not all(isnan(value) for value in error) else nan,
    }
    if threshold is not None:
        above = [t for t, value in enumerate(error) if value > threshold]
        result["first_above"] = float(above[0]) if above else nan
    return result


# ---------------------------------------------------------------------------- surprise


def order(possible: float, impossible: float) -> float:
    """1 if the impossible video surprises more, 0.5 for a tie; NaN loses."""
    if isnan(possible) or isnan(impossible):
        return 0.0
    return 0.5 if possible == impossible else float(impossible > possible)


def surprise(
    videos: Sequence[tuple[Sequence[float], int, bool]],
    aggregate: str = "mean",
    confidence: float = 0.95,
) -> dict[str, Any]:
    """Pairwise accuracy of videos, each the errors of its steps, a pair and a kind."""
    judged = [(list(errors), pair, kind) for errors, pair, kind in videos if len(errors)]
    scored = [
        (mean_of(errors) if aggregate == "mean" else float(np.max(errors)), pair, kind)
        for errors, pair, kind in judged
    ]
    right, used = [], 0
    for pair in sorted({pair for _, pair, _ in scored}):
        could = [score for score, other, kind in scored if other == pair and kind]
        could_not = [score for score, other, kind in scored if other == pair and not kind]
        if could and could_not:
            right.append(mean_of([order(a, b) for a in could for b in could_not]))
            used += len(could) + len(could_not)
    low, high = wilson_interval(sum(right), len(right), confidence)
    could = [score for score, _, kind in scored if kind]
    could_not = [score for score, _, kind in scored if not kind]
    return {
        "pair_accuracy": mean_of(right),
        "low": low,
        "high": high,
        "n": len(right),
        "auroc": mean_of([order(a, b) for a in could for b in could_not]),
        "n_excluded": len(videos) - used,
    }
